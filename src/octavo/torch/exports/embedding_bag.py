"""octavo::embedding_bag: rows looked up, masked and pooled in float32.

    indices [bags, length]         rows [bags, length, dim]  ─ Mul(mask) ─ ReduceSum(1)
    indices [count], offsets       rows [count, dim]; M [bags, count] is 1 where a row is in a bag
        sum, mean                  MatMul(M, rows)
        max                        ReduceMax(Where(M, rows, -inf), 1)

A bag without rows is 0. With offsets the work is bags x count: ONNX has no sum over segments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.core.embedding import MODES
from octavo.graph.emit.emitter import Emitter
from octavo.torch.exports.layers import STOCK_FORM, look_up
from octavo.torch.exports.program import call_of
from octavo.torch.exports.reading import ExportContext, Outputs, layer_of

INT64 = ir.DataType.INT64


def read_embedding_bag(node: ir.Node, c: ExportContext) -> Outputs:
    """Build an embedding bag's nodes; return the bags, float32 [bags, embedding_dim]."""
    call, e = call_of(node), c.emitter
    out = node.outputs[0].name or "bags"
    indices = call["indices"]
    if c.native:
        c.note(layer_of(call["table"]), STOCK_FORM)
    rows = look_up(call, indices, c, name=node.name or out, out=f"{out}_rows")
    if call["padding"] >= 0:
        padding = e.cast(e.scalar(call["padding"], np.int64), indices.dtype or INT64, f"{out}_pad")
        kept = e.op(
            "Not", [e.op("Equal", [indices, padding], out=f"{out}_is_pad")], out=f"{out}_kept"
        )
    else:
        # As Equal of the indices with themselves, it has their shape, whatever that is.
        kept = e.op("Equal", [indices, indices], out=f"{out}_kept")
    if call["offsets"] is None:
        member = kept  # [bags, length], beside rows [bags, length, dim]
    else:
        inside = _inside(e, indices, call["offsets"], out=out, last=call["last"])
        member = e.op("And", [inside, kept], out=f"{out}_members")  # [bags, count]
    return [_pooled(e, rows, member, call, out)]


def _inside(e: Emitter, indices: ir.Value, offsets: ir.Value, *, out: str, last: bool) -> ir.Value:
    """bool [bags, count]: whether a bag begins at or before an index, and ends after it."""
    count = e.op("Shape", [indices], out=f"{out}_count")
    wide = e.cast(offsets, INT64, f"{out}_offsets")
    one, zero, end = e.vector([1]), e.vector([0]), e.vector([2**62])
    if last:
        starts = e.op("Slice", [wide, zero, e.vector([-1])], out=f"{out}_starts")
        ends = e.op("Slice", [wide, one, end], out=f"{out}_ends")
    else:
        rest = e.op("Slice", [wide, one, end], out=f"{out}_rest")
        starts, ends = wide, e.op("Concat", [rest, count], out=f"{out}_ends", axis=0)
    length = e.op("Squeeze", [count, zero], out=f"{out}_length")
    first, step = e.scalar(0, np.int64), e.scalar(1, np.int64)
    places = e.op("Range", [first, length, step], out=f"{out}_places")
    starts = e.op("Unsqueeze", [starts, one], out=f"{out}_first")
    ends = e.op("Unsqueeze", [ends, one], out=f"{out}_behind")
    begun = e.op("LessOrEqual", [starts, places], out=f"{out}_begun")
    return e.op(
        "And", [begun, e.op("Less", [places, ends], out=f"{out}_open")], out=f"{out}_inside"
    )


def _pooled(
    e: Emitter, rows: ir.Value, member: ir.Value, call: dict[str, Any], out: str
) -> ir.Value:
    """Pool the rows of each bag's members, bool [bags, length], as the mode of `call` says.

    `rows` are [bags, length, dim], or [length, dim] where all bags pick from the same.
    """
    axis, mode = e.vector([1]), MODES[call["mode"]]
    mask = e.cast(member, ir.DataType.FLOAT, f"{out}_mask")
    if mode != "sum":
        count = e.op("ReduceSum", [mask, axis], out=f"{out}_members_count", keepdims=1)
    if mode == "max":
        zero = e.scalar(0.0, np.float32)
        wide = e.op("Unsqueeze", [member, e.vector([-1])], out=f"{out}_wide")
        seen = e.op("Where", [wide, rows, e.scalar(-np.inf, np.float32)], out=f"{out}_seen")
        top = e.op("ReduceMax", [seen, axis], out=f"{out}_top", keepdims=0)
        some = e.op("Greater", [count, zero], out=f"{out}_some")
        return e.op("Where", [some, top, zero], out=f"{out}_pooled")
    if call["weights"] is not None:
        mask = e.op("Mul", [mask, call["weights"]], out=f"{out}_weighted")
    if call["offsets"] is not None:
        total = e.op("MatMul", [mask, rows], out=f"{out}_total")
    else:
        mask = e.op("Unsqueeze", [mask, axis], out=f"{out}_row")
        total = e.op("MatMul", [mask, rows], out=f"{out}_rows_total")
        total = e.op("Squeeze", [total, axis], out=f"{out}_total")
    if mode == "sum":
        return total
    divisor = e.op("Max", [count, e.scalar(1.0, np.float32)], out=f"{out}_divisor")
    return e.op("Div", [total, divisor], out=f"{out}_mean")
