"""Quantizing activations while the model runs, with operators of stock ONNX Runtime.

Per row, symmetric around 128, in one of two forms that give the same integers up to the last bit
of a division:

    narrow   x ─ Abs ─ ReduceMax ─ r ──┐            7 nodes at most, two passes more over x:
             x ────────────────────── Div ─ QuantizeLinear(1/127, 128)    wins for few rows
    wide     x ─ ReduceMax, ReduceMin ─ r/127 ─┐    13 nodes at most, no pass that writes floats:
             x ─ Reshape[-1, K] ─ QuantizeLinear(axis 0) ─ Reshape        wins for long rows

ONNX Runtime's maximum drops NaN, so that a row with one would come out finite. Where the row is not
known to hold NaN everywhere or nowhere (`uniform`), `0 * ReduceSum(x)` is added to its scale.
A row of zeros divides 0 by 0; whatever integers come of that are multiplied by its scale, 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.emitter import Emitter

WIDE_FROM = 1024  # inputs; measured: below, the nodes cost more than the passes


@dataclass(frozen=True)
class QuantizedRows:
    """A quantized activation: `(q - zero_point) * scale`, times `row_scale` where there is one.

    `scale` and `zero_point` are scalars for the integer product to apply; `row_scale` has the
    activation's shape with a last axis of 1 and is applied to the product's result.
    """

    q: ir.Value
    scale: ir.Value
    zero_point: ir.Value
    row_scale: ir.Value | None


def quantize_rows(e: Emitter, x: ir.Value, width: int, *, uniform: bool) -> QuantizedRows:
    """Nodes that quantize float32 `x` [..., width] per row. See the module's picture."""
    name = x.name or "x"
    if width >= WIDE_FROM and e.opset >= 13:
        return _wide(e, x, width, name, uniform)
    amax = e.reduce_last("ReduceMax", e.op("Abs", [x], out=f"{name}_abs"), f"{name}_amax")
    row = amax if uniform else _poison(e, x, amax, name)
    ratio = e.op("Div", [x, row], out=f"{name}_ratio")
    step, zero = e.scalar(np.float32(1 / 127), np.float32), e.scalar(128, np.uint8)
    q = e.op("QuantizeLinear", [ratio, step, zero], out=f"{name}_quantized")
    return QuantizedRows(q, step, zero, row)


def _wide(e: Emitter, x: ir.Value, width: int, name: str, uniform: bool) -> QuantizedRows:
    high = e.reduce_last("ReduceMax", x, f"{name}_max")
    low = e.reduce_last("ReduceMin", x, f"{name}_min")
    amax = e.op("Max", [high, e.op("Neg", [low], out=f"{name}_negmin")], out=f"{name}_amax")
    step = e.scalar(np.float32(1 / 127), np.float32)
    row = e.op("Mul", [amax, step], out=f"{name}_row_scale")
    if not uniform:
        row = _poison(e, x, row, name)
    flat = e.op("Reshape", [x, e.vector([-1, width])], out=f"{name}_flat")
    scales = e.op("Reshape", [row, e.vector([-1])], out=f"{name}_flat_scale")
    zero = e.scalar(128, np.uint8)
    rows = e.op("Shape", [scales], out=f"{name}_rows")
    zeros = e.op("Expand", [zero, rows], out=f"{name}_zeros")
    q = e.op("QuantizeLinear", [flat, scales, zeros], out=f"{name}_flat_quantized", axis=0)
    shape = e.op("Shape", [x], out=f"{name}_shape")
    q = e.op("Reshape", [q, shape], out=f"{name}_quantized")
    return QuantizedRows(q, e.scalar(1.0, np.float32), zero, row)


def _poison(e: Emitter, x: ir.Value, row: ir.Value, name: str) -> ir.Value:
    total = e.reduce_last("ReduceSum", x, f"{name}_sum")
    nothing = e.op("Mul", [total, e.scalar(0.0, np.float32)], out=f"{name}_nan")
    return e.op("Add", [row, nothing], out=f"{name}_row")


def quantize_tensor(e: Emitter, x: ir.Value) -> QuantizedRows:
    """One scale and zero point for the whole of `x`, as ONNX Runtime's quantize_dynamic names them."""
    name = x.name or "x"
    q, scale, zero = e.op_n(
        "DynamicQuantizeLinear",
        [x],
        outs=(f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"),
        name=f"{name}_QuantizeLinear",
    )
    return QuantizedRows(q, scale, zero, None)
