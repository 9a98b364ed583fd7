"""Integer products as MatMul.

quantize(x) ─ integer product with W ─ scales       ->  MatMul(x, W), W a constant
quantize(a) ─ integer product with quantize(b) ─ .. ->  MatMul(a, b)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.graph.lower.products import scale_output
from octavo.onnx.from_quantized.context import RestoringContext, WasQuantized
from octavo.onnx.from_quantized.products import Product, product_of
from octavo.onnx.from_quantized.quantized_rows import made_by, rows_of

SUFFIX = "_quant"
"""ONNX Runtime's quantizer adds it to the names of nodes."""


def restore(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was such a product; a float one stands in its place then."""
    found = product_of(node, t)
    if found is None or found.last.graph is not node.graph:
        return False
    b, alpha = _right(found, t)
    if b is None:
        return False
    e, out = t.emitter, found.last.outputs[0].name or "y"
    name = layer_name(node)
    t.names.nodes.free(node.name)
    product = y = e.op("MatMul", [found.x, b], out=out, name=name)
    if alpha != 1.0:
        y = scale_output(e, y, alpha, f"{out}_scaled")
    if found.bias is not None:
        y = e.op("Add", [y, found.bias], out=f"{out}_biased")
    t.restored[product] = WasQuantized(node.op_type, found.per_row)
    t.replace(found.last, [y])
    return True


def layer_name(node: ir.Node) -> str:
    """Return the name that the layer had before it was quantized."""
    return (node.name or node.op_type.lower()).removesuffix(SUFFIX)


def _right(found: Product, t: RestoringContext) -> tuple[ir.Value | None, float]:
    """Return the right operand in float, and what the product is multiplied by."""
    if not t.constants.is_constant(found.w):
        b = rows_of(found.w, t)
        if b is None or b.row is not None or not _is_of(found.scale, b.scale):
            return None, found.alpha
        if found.zero_point is not b.zero_point:
            return None, found.alpha
        return b.x, found.alpha
    if not t.are_constant(found.scale, found.zero_point):
        return None, found.alpha
    alpha = found.alpha if found.alpha > 0 else 1.0
    zero = None if found.zero_point is None else t.numbers(found.zero_point)
    scale = (t.numbers(found.scale) * np.float32(alpha)).astype(np.float32)
    return t.weight(found.w, scale, zero), found.alpha / alpha


def _is_of(scale: ir.Value, tensor: ir.Value | None) -> bool:
    """Tell whether `scale` is that of a whole tensor, perhaps with 0 or NaN added."""
    added = made_by(scale, "Add")
    return scale is tensor or (added is not None and tensor in added.inputs)
