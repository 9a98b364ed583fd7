"""QAttention as its projection and what follows it.

QAttention(quantize(x), W, b, mask)  ->  MatMul(x, W) ─ Add(b) ─ Split ─ MultiHeadAttention(mask)

One that keeps a past, is causal, rotates positions or has another mask than [batch, sequence] stays
as it is: MultiHeadAttention of older ONNX Runtimes has no such form.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.ir import MS
from octavo.onnx.from_quantized.context import RestoringContext, WasQuantized
from octavo.onnx.from_quantized.linear import layer_name
from octavo.onnx.from_quantized.quantized_rows import rows_of
from octavo.onnx.operators.reader import attribute_int, input_at

KEPT = ("num_heads", "scale", "mask_filter_value")
MASK_AXES = 2


def restore(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was such a layer; a float one stands in its place then."""
    q, bias = node.inputs[1], input_at(node, 2)
    step, scale, mask, zero, w_zero = (input_at(node, i) for i in (3, 4, 5, 6, 7))
    rows = rows_of(node.inputs[0], t)
    if rows is None or rows.row is not None or q is None or scale is None or why_left(node):
        return False
    if step is not rows.scale or zero is not rows.zero_point:
        return False
    if not t.are_constant(q, scale, w_zero):
        return False
    w = t.weight(q, t.numbers(scale), None if w_zero is None else t.numbers(w_zero))
    if w is None:
        return False
    e, name, out = t.emitter, layer_name(node), node.outputs[0].name or "attended"
    t.names.nodes.free(node.name)
    product = y = e.op("MatMul", [rows.x, w], out=f"{out}_qkv", name=f"{name}_projection")
    if bias is not None:
        y = e.op("Add", [y, bias], out=f"{out}_biased")
    width = t.constants.shape(w)[1] // 3
    parts = e.split(y, -1, [width] * 3, [f"{out}_{part}" for part in "qkv"])
    kept = {k: a for k, a in node.attributes.items() if k in KEPT}
    inputs = [*parts] if mask is None else [*parts, None, mask]
    y = e.op("MultiHeadAttention", inputs, out=out, domain=MS, name=name, **kept)
    t.restored[product] = WasQuantized(node.op_type, per_row=False)
    t.replace(node, [y])
    return True


def why_left(node: ir.Node) -> str:
    """Return why a QAttention stays as it is, "" where it does not."""
    mask = input_at(node, 5)
    if mask is not None and (mask.shape is None or len(mask.shape) != MASK_AXES):
        return "its mask is not stated to be [batch, sequence]"
    present = len(node.outputs) > 1 and (
        node.outputs[1].uses() or node.outputs[1].is_graph_output()
    )
    if input_at(node, 8) is not None or present:
        return "it keeps a past"
    if attribute_int(node, "unidirectional", 0):
        return "it is causal"
    if attribute_int(node, "do_rotary", 0):
        return "it rotates positions"
    return ""
