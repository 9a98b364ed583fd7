"""Integer products as ai.octavo operators.

    quantize_rows(x) ─ MatMulIntegerToFloat(W) ─ Mul(row)    ->  Linear(x, W packed)
    quantize_rows(a) ─ MatMulIntegerToFloat(quantized b) ─ Mul  ->  MatMul(a, b)

What follows a Linear `octavo.graph.rewrite` takes in afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.stored_integers import as_int8
from octavo.graph.lower.products import scale_output
from octavo.ir.activation_products import MatMul
from octavo.ir.linear import Linear
from octavo.ir.weight import Weight, WeightIntegers
from octavo.onnx.from_portable.context import RecognitionContext, Shared
from octavo.onnx.from_portable.quantized_rows import Product, product_of, rows_of

PER_ROW = "activations per row: target native has no scale for a whole tensor"
PER_COLUMN = "a product of two activations: columns of the right one get a scale each"


def recognize(node: ir.Node, t: RecognitionContext) -> bool:
    """Whether `node` was such a product; it is drawn anew then."""
    found = product_of(node, t)
    if found is None:
        return False
    if not t.constants.is_constant(found.w):
        return _recognize_activations(node, found, t)
    if len(t.constants.shape(found.w)) != 2 or found.last.graph is not node.graph:
        return False
    e, out = t.emitter, found.last.outputs[0].name or "y"
    name = _name(node)
    alpha = found.alpha if found.alpha > 0 else np.float32(1)
    weight = _weight(found, alpha, node, t)
    t.names.nodes.free(node.name)
    (y,) = t.put(Linear(found.x, weight), name=name, outs=[out])
    if alpha != found.alpha:
        y = scale_output(e, y, float(found.alpha), f"{out}_scaled")
    if not found.per_row:
        t.note(name, PER_ROW)
    t.replace(found.last, [y], "Linear")
    return True


def _name(node: ir.Node) -> str:
    """The layer's name: ONNX Runtime's quantize_dynamic adds a suffix to it."""
    name = node.name or "linear"
    return name.removesuffix("_quant") if node.op_type == "MatMulInteger" else name


def _recognize_activations(node: ir.Node, found: Product, t: RecognitionContext) -> bool:
    b = rows_of(found.w, t)
    if b is None or b.row is not None or found.alpha != 1:
        return False
    name = _name(node)
    t.names.nodes.free(node.name)
    out = found.last.outputs[0].name or "y"
    t.note(name, PER_COLUMN)
    t.replace(found.last, t.put(MatMul(found.x, b.x), name=name, outs=[out]), "MatMul")
    return True


def _weight(found: Product, alpha: np.float32, node: ir.Node, t: RecognitionContext) -> Weight:
    """W [N, K]; wherever it is stored as [N, K], lookups may share it."""
    k, n = t.constants.shape(found.w)
    root = t.constants.root(found.w)
    place = (root.leaf, not root.transposed, node.graph)
    scale = (np.broadcast_to(t.numbers(found.scale).reshape(-1), n) * alpha).astype(np.float32)
    shared = t.matrices.get(place)
    if shared is not None and np.array_equal(scale, shared.scale):
        return shared.weight
    zeros = _zeros(found, n, t)

    def make() -> WeightIntegers:
        stored = t.numbers(root.leaf)
        q, zero = as_int8(stored if root.transposed else stored.T, zeros)
        q = np.array(q, order="C")
        t.constants.release(root.leaf)
        return WeightIntegers(q, scale, zero if np.any(zero) else None)

    key = (root.leaf, root.transposed, found.scale, found.zero_point, alpha)
    name = (root.leaf.name or "weight").removesuffix("_quantized")
    unsigned = t.constants.dtype(root.leaf) is ir.DataType.UINT8
    weight = t.once(("packed", *key), lambda: Weight(key, name, (n, k), make, source=found.w))
    moved = zeros.astype(np.int32) - (128 if unsigned else 0)
    t.matrices[place] = Shared(weight, scale, moved)
    return weight


def _zeros(found: Product, n: int, t: RecognitionContext) -> npt.NDArray[Any]:
    if found.zero_point is None:
        return np.zeros(n, t.constants.array(found.w).dtype)
    return np.broadcast_to(t.numbers(found.zero_point).reshape(-1), n)
