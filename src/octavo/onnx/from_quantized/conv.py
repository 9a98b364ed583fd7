"""Integer convolutions as Conv.

quantize(x) ─ ConvInteger(W) ─ Cast ─ Mul(scales) ─ [Mul(image scale)] ─ [Add(bias)]  ->
Conv(x, W, [bias])

Early quantizers add the bias in integers, Reshape(Cast(Floor(Div(bias, scales)))), before the Cast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.onnx.from_quantized.context import RestoringContext, WasQuantized
from octavo.onnx.from_quantized.linear import layer_name
from octavo.onnx.from_quantized.products import scaled_integers
from octavo.onnx.from_quantized.quantized_rows import other, read_by
from octavo.onnx.operators.reader import attributes_of, input_at

ROUNDED = ("Floor", "Round")


def restore(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was the ConvInteger of a quantized Conv; a Conv replaces it then."""
    q, early = node.inputs[1], _early_bias(node, t)
    found = scaled_integers(node, t, None if early is None else early.outputs[0])
    if found is None or q is None or not t.are_constant(q, found[1], input_at(node, 3)):
        return False
    rows, scale, last = found
    if rows.row is not None:
        y, image = last.outputs[0], read_by(last.outputs[0], "Mul")
        if image is None or other(image, y) is not rows.row:
            return False
        last = image
    shape, zero = t.constants.shape(q), input_at(node, 3)
    zeros = None if zero is None else t.numbers(zero)
    if zeros is not None and zeros.ndim == 1:
        zeros = zeros.reshape(-1, *[1] * (len(shape) - 1))
    scales = t.numbers(scale)
    if scales.size not in (1, shape[0]):
        return False
    # As it multiplies the results, [M, 1, ...] or a number; as it multiplies the filters here.
    w = t.weight(q, scales.reshape(-1, *[1] * (len(shape) - 1)), zeros)
    if w is None:
        return False
    name = layer_name(node)
    bias, last = _bias(last, shape, name, t)
    if early is not None:
        bias, last = _float_bias(early), found[2]
    t.names.nodes.free(node.name)
    inputs = [rows.x, w] if bias is None else [rows.x, w, bias]
    out = last.outputs[0].name or "images"
    attributes: dict[str, Any] = attributes_of(node)
    y = t.emitter.op("Conv", inputs, out=out, name=name, **attributes)
    t.restore(last, [y], WasQuantized(node.op_type, rows.row is not None))
    return True


def _bias(
    last: ir.Node, shape: tuple[int, ...], name: str, t: RestoringContext
) -> tuple[ir.Value | None, ir.Node]:
    """Return the bias [M] behind `last`, and the node that adds it; None and `last` without one."""
    outputs, rank = shape[0], len(shape)
    add = read_by(last.outputs[0], "Add")
    value = None if add is None else other(add, last.outputs[0])
    if add is None or value is None or not t.constants.is_constant(value):
        return None, last
    stated = t.constants.shape(value)
    if stated[-(rank - 1) :] != (outputs, *[1] * (rank - 2)) or np.prod(stated) != outputs:
        return None, last
    numbers = np.array(t.numbers(value), np.float32).reshape(-1)
    return t.emitter.constant(numbers, f"{name}_bias"), add


def _early_bias(node: ir.Node, t: RestoringContext) -> ir.Node | None:
    """Return the node that adds a bias to the integers of `node`, if one does."""
    add = read_by(node.outputs[0], "Add")
    bias = None if add is None else _float_bias(add)
    return add if bias is not None and t.constants.is_constant(bias) else None


def _float_bias(add: ir.Node) -> ir.Value | None:
    """Return the bias [M] that was divided by the scales, rounded and shaped."""
    for value in add.inputs:
        at = value
        for op in ("Reshape", "Cast", ROUNDED, "Div"):
            node = None if at is None else at.producer()
            if node is None or node.op_type not in (op if isinstance(op, tuple) else (op,)):
                at = None
                break
            at = node.inputs[0]
        if at is not None:
            return at
    return None
