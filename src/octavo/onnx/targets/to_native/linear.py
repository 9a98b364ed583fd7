"""Integer products as ai.octavo operators.

    quantize_rows(x) ─ MatMulIntegerToFloat(W) ─ Mul(row)    ->  Linear(x, W packed)
    quantize_rows(a) ─ MatMulIntegerToFloat(quantized b) ─ Mul  ->  MatMul(a, b)

What follows a Linear `octavo.graph.native.fusions` takes in afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.linear import scale_output
from octavo.graph.native.linear import PackedValues, linear, packed_tensor
from octavo.graph.native.matmul import matmul
from octavo.onnx.native.packed import as_int8
from octavo.onnx.targets.to_native.product import Product, product_of
from octavo.onnx.targets.to_native.rows import rows_of
from octavo.onnx.targets.turning import Turning

PER_ROW = "activations per row: target native has no scale for a whole tensor"
PER_COLUMN = "a product of two activations: columns of the right one get a scale each"


def turn(node: ir.Node, t: Turning) -> bool:
    """Whether `node` was such a product; it is drawn anew then."""
    found = product_of(node, t)
    if found is None:
        return False
    if not t.constants.is_constant(found.w):
        return _turn_activations(node, found, t)
    if len(t.constants.shape(found.w)) != 2 or found.last.graph is not node.graph:
        return False
    e, out = t.emitter, found.last.outputs[0].name or "y"
    name = _name(node)
    alpha = found.alpha if found.alpha > 0 else np.float32(1)
    weight = _packed(found, alpha, node, t)
    zeros = np.zeros(weight.n, np.float32)
    bias = e.constant(zeros, f"{name}_bias", node.graph)
    t.names.nodes.free(node.name)
    y = linear(e, found.x, weight, bias, group_size=0, name=name, out=out)
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


def _turn_activations(node: ir.Node, found: Product, t: Turning) -> bool:
    b = rows_of(found.w, t)
    if b is None or b.row is not None or found.alpha != 1:
        return False
    name = _name(node)
    t.names.nodes.free(node.name)
    out = found.last.outputs[0].name or "y"
    y = matmul(t.emitter, found.x, b.x, transpose_b=False, name=name, out=out)
    t.note(name, PER_COLUMN)
    t.replace(found.last, [y], "MatMul")
    return True


def _packed(found: Product, alpha: np.float32, node: ir.Node, t: Turning) -> PackedValues:
    """W [K, N] as it is packed, [N, K]; wherever it is stored as [N, K], lookups may share it."""
    k, n = t.constants.shape(found.w)
    root = t.constants.root(found.w)
    shared = t.packed.get((root.leaf, not root.transposed, node.graph))
    if shared is not None and _same_scales(found, alpha, shared, t):
        return shared

    def make() -> PackedValues:
        stored = t.array(root.leaf)
        q, zero = as_int8(stored if root.transposed else stored.T, _zeros(found, n, t))
        scale = np.broadcast_to(t.array(found.scale).reshape(-1), n) * alpha
        packed, digest = packed_tensor(np.ascontiguousarray(q))
        t.constants.release(root.leaf)
        arrays: tuple[npt.NDArray[Any], ...] = (packed, scale.astype(np.float32), zero)
        name = (root.leaf.name or "weight").removesuffix("_quantized")
        wishes = [f"{name}_{what}" for what in ("quantized", "scale", "zero_point")]
        parts = [t.hold(a, w, node.graph) for a, w in zip(arrays, wishes, strict=True)]
        return PackedValues(parts[0], parts[1], parts[2], n, k, digest)

    key = (root.leaf, root.transposed, found.scale, found.zero_point, alpha, node.graph)
    weight = t.once(("packed", *key), make)
    t.packed[root.leaf, not root.transposed, node.graph] = weight
    return weight


def _same_scales(found: Product, alpha: np.float32, held: PackedValues, t: Turning) -> bool:
    scale = (t.array(found.scale).reshape(-1) * alpha).astype(np.float32)
    return bool(np.array_equal(np.broadcast_to(scale, held.n), t.array(held.scale)))


def _zeros(found: Product, n: int, t: Turning) -> npt.NDArray[Any]:
    if found.zero_point is None:
        return np.zeros(n, t.constants.array(found.w).dtype)
    return np.broadcast_to(t.array(found.zero_point).reshape(-1), n)
