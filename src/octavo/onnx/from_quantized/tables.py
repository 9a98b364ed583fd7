"""Lookups in integer tables with a scale for each row, as Gather of a float one.

Mul(Sub(Cast(Gather(table, i)), zero), Gather(row scales, i))  ->  Gather(W, i)

Those with one scale for all are `pairs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.onnx.from_quantized.context import BYTES, RestoringContext, WasQuantized
from octavo.onnx.from_quantized.linear import layer_name
from octavo.onnx.from_quantized.quantized_rows import made_by, number, other, read_by
from octavo.onnx.operators.reader import attribute_int


def restore(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was the Gather of such a lookup; a float one stands in its place then."""
    table, indices = node.inputs[0], node.inputs[1]
    if table is None or indices is None or node.domain not in ("", "ai.onnx"):
        return False
    if not t.constants.is_constant(table) or t.constants.dtype(table) not in BYTES:
        return False
    found = _centred(node, indices, t) if attribute_int(node, "axis", 0) == 0 else None
    last = None if found is None else read_by(found[1], "Mul")
    if found is None or last is None:
        return False
    zeros, steps = found
    scales, shape = _looked_up(other(last, steps), indices, t), t.constants.shape(table)
    if scales is None or len(shape) < 2 or scales.size != shape[0]:
        return False
    column = (-1, *[1] * (len(shape) - 1))
    w = t.weight(table, scales.reshape(column), zeros.reshape(column))
    if w is None:
        return False
    t.names.nodes.free(node.name)
    out = last.outputs[0].name or "rows"
    y = t.emitter.op("Gather", [w, indices], out=out, name=layer_name(node), axis=0)
    t.restore(last, [y], WasQuantized(node.op_type, per_row=True))
    return True


def _on_rows(node: ir.Node) -> bool:
    return node.op_type == "Gather" and attribute_int(node, "axis", 0) == 0


def _centred(
    node: ir.Node, indices: ir.Value, t: RestoringContext
) -> tuple[npt.NDArray[Any], ir.Value] | None:
    """Return the zero points, one or one a row, and the steps from them as float32."""
    cast = read_by(node.outputs[0], "Cast")
    if cast is None:
        return None
    steps = cast.outputs[0]
    sub = read_by(steps, "Sub")
    if sub is None:
        return np.zeros(1, np.int32), steps
    by = sub.inputs[1]
    one = number(by, t)
    if one is not None:
        return np.array([one]).astype(np.int32), sub.outputs[0]
    wide = made_by(by, "Cast")
    zeros = None if wide is None else _looked_up(wide.inputs[0], indices, t)
    return None if zeros is None else (zeros.reshape(-1), sub.outputs[0])


def _looked_up(
    value: ir.Value | None, indices: ir.Value, t: RestoringContext
) -> npt.NDArray[Any] | None:
    """Return the constant whose entries for `indices` are `value`."""
    gather = made_by(value, "Gather")
    if gather is None or not _on_rows(gather) or gather.inputs[1] is not indices:
        return None
    stored = gather.inputs[0]
    return t.numbers(stored) if stored is not None and t.constants.is_constant(stored) else None
