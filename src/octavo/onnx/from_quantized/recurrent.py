"""Recurrent layers over integer weights as float ones.

DynamicQuantizeLSTM(x, W, R, B, ..., scales)        ->  LSTM(x, W, R, B, ...)
GRU(x, Reshape(DequantizeLinear(W)), ..., B, ...)   ->  GRU(x, W, R, B, ...); RNN likewise
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.lower.recurrent import GATES
from octavo.ir import MS
from octavo.onnx.from_quantized.context import RestoringContext, WasQuantized
from octavo.onnx.from_quantized.linear import layer_name
from octavo.onnx.from_quantized.quantized_rows import made_by
from octavo.onnx.operators.reader import attribute_int, attributes_of, input_at
from octavo.onnx.operators.recurrent_nodes import ways_of

STATED = 8
"""Inputs of LSTM; those of DynamicQuantizeLSTM have scales and zero points behind them."""


PER_UNIT = 2
"""Axes of scales that are one for each unit of a gate; others are one for each direction."""


def restore(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was such a layer; a float one stands in its place then."""
    op = node.op_type.removeprefix("DynamicQuantize")
    dynamic = op != node.op_type
    if op not in GATES or node.domain not in ((MS,) if dynamic else ("", "ai.onnx")):
        return False
    if attribute_int(node, "input_forget", 0):
        return False
    made = [(_dynamic if dynamic else _dequantized)(node, i, t) for i in (1, 2)]
    if None in made:
        return False
    name = layer_name(node)
    t.names.nodes.free(node.name)
    inputs = [node.inputs[0], *made, *node.inputs[3:STATED]]
    while inputs and inputs[-1] is None:
        inputs.pop()
    outs = [(o.name or "") if o.uses() or o.is_graph_output() else "" for o in node.outputs]
    attributes: dict[str, Any] = attributes_of(node)
    ys = t.emitter.op_n(op, inputs, outs=outs, name=name, **attributes)
    results = [y if out else None for y, out in zip(ys, outs, strict=True)]
    t.restored[ys[0]] = WasQuantized(node.op_type, per_row=not dynamic)
    t.replace(node, results)
    return True


def _dynamic(node: ir.Node, index: int, t: RestoringContext) -> ir.Value | None:
    """W [D, 4H, I] or R of a DynamicQuantizeLSTM, which holds them as [D, I, 4H]."""
    q = input_at(node, index)
    scale, zero = (input_at(node, 2 * index + i) for i in (6, 7))
    if q is None or scale is None or not t.are_constant(q, scale, zero):
        return None
    shape = t.constants.shape(q)
    if len(shape) != 3:
        return None
    # One a direction [D], or one a gate's unit [D, 4H].
    parts = [t.numbers(scale), np.zeros(1, np.int8) if zero is None else t.numbers(zero)]
    scales, zeros = (a.reshape(*a.shape, *[1] * (2 - a.ndim))[:, None, :] for a in parts)
    one = np.ndim(t.numbers(scale)) < PER_UNIT
    kind = "int8" if t.constants.dtype(q) is ir.DataType.INT8 else "uint8"
    form = f"{kind} per {'tensor' if one else 'channel'}"
    held = t.weight(q, scales, zeros, form=form)
    if held is None:
        return None
    return t.emitter.transpose(held, [0, 2, 1], f"{held.name}_rows")


def _dequantized(node: ir.Node, index: int, t: RestoringContext) -> ir.Value | None:
    """W or R behind Reshape and DequantizeLinear."""
    shaped = made_by(input_at(node, index), "Reshape")
    rows = None if shaped is None else made_by(shaped.inputs[0], "DequantizeLinear")
    if rows is None or shaped is None or attribute_int(rows, "axis", 1) != 0:
        return None
    q, scale, zero = rows.inputs[0], rows.inputs[1], input_at(rows, 2)
    if q is None or scale is None or not t.are_constant(q, scale, zero, shaped.inputs[1]):
        return None
    if len(t.constants.shape(q)) != 2 or t.constants.shape(scale) != t.constants.shape(q)[:1]:
        return None
    zeros = None if zero is None else t.numbers(zero).reshape(-1, 1)
    held = t.weight(q, t.numbers(scale).reshape(-1, 1), zeros)
    if held is None:
        return None
    n, k = t.constants.shape(q)
    ways = ways_of(node)
    return t.emitter.op(
        "Reshape", [held, t.emitter.vector([ways, n // ways, k])], out=f"{held.name}_ways"
    )
