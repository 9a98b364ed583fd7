"""Quantizing activations while the model runs, with operators of stock ONNX Runtime.

Per row, around a constant zero point z: q = round(x / r * (255 - z)) + z, and the integer product
is multiplied by r / (255 - z) afterwards. The row's range r is max|x| for z = 128 (symmetric), max
x for z = 0 (no negative values), max(max x, -min x * (255 - z) / z) for others. Two ways to draw
it, which give the same integers up to the last bit of a division:

    narrow   x ─ Abs ─ ReduceMax ─ r ─ 1/r ─┐       9 nodes at most, two passes more over x:
             x ─────────────────────────── Mul ─ QuantizeLinear(1/(255-z), z)   wins for few rows
    wide     x ─ ReduceMax, ReduceMin ─ r ─┐        16 nodes at most, no pass that writes floats:
             x ─ Reshape[-1, K] ─ QuantizeLinear(axis 0) ─ Reshape         wins for long rows

ONNX Runtime divides four numbers in the time of a dozen products, so that a row is multiplied by
1/r. Shapes and zero points are computed once for all activations of the same sizes (`SharedSizes`).

ONNX Runtime's maximum drops NaN, so that a row with one would come out finite. Where the row is not
known to hold NaN everywhere or nowhere (`uniform`), `0 * ReduceSum(x)` is added to its range; a row
whose sum overflows float32 is taken for one that is not finite.
A row whose range is 0, or so small that 1/r is infinite, gets whatever integers come of that; they
are multiplied by r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.dims import Dim, Dims
from octavo.graph.analysis.zero_points import SYMMETRIC
from octavo.graph.emit.emitter import Emitter

# docs/notes/onnxruntime.md: "Rows are quantized in two forms"
WIDE_FROM = 1024  # inputs; measured: below, the nodes cost more than the passes


Sizes = tuple[Dim, ...]


# docs/notes/onnxruntime.md: "Shapes and zero points are made once"
class SharedSizes:
    """Shapes and zero points of the activations of one graph.

    Which of them have the same sizes in every run is told by `dims`; without it each is a case of
    its own.
    """

    def __init__(self, emitter: Emitter, dims: Dims | None) -> None:
        self._emitter, self._dims = emitter, dims
        self._made: dict[tuple[str, Sizes], ir.Value] = {}

    def shape(self, x: ir.Value) -> ir.Value:
        """Return the shape of `x`, an int64 vector."""
        return self._once("shape", self._sizes(x), lambda: self._shape(x))

    def zero_points(self, x: ir.Value, scales: ir.Value, zero_point: int) -> ir.Value:
        """Repeat `zero_point` in uint8 for each row of `x`, as often as `scales` has elements."""
        rows = None if (sizes := self._sizes(x)) is None else sizes[:-1]
        name = f"{x.name}_zeros"
        number = ir.tensor([zero_point], ir.DataType.UINT8)

        def make() -> ir.Value:
            count = self._shape(scales)
            return self._emitter.op("ConstantOfShape", [count], out=name, value=number)

        return self._once(f"zero points {zero_point}", rows, make)

    def _shape(self, x: ir.Value) -> ir.Value:
        return self._emitter.op("Shape", [x], out=f"{x.name}_shape")

    def _sizes(self, x: ir.Value) -> Sizes | None:
        sizes = None if self._dims is None else self._dims(x)
        return None if sizes is None or None in sizes else sizes

    def _once(self, what: str, sizes: Sizes | None, make: Callable[[], ir.Value]) -> ir.Value:
        if sizes is None:
            return make()
        if (what, sizes) not in self._made:
            self._made[what, sizes] = make()
        return self._made[what, sizes]


# docs/notes/onnxruntime.md: "Rows are uint8"
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


def quantize_rows(
    e: Emitter,
    x: ir.Value,
    width: int,
    by_sizes: SharedSizes,
    *,
    uniform: bool,
    maybe_none: bool = False,
    zero_point: int = SYMMETRIC,
) -> QuantizedRows:
    """Nodes that quantize float32 `x` [..., width] per row. See the module's picture.

    `maybe_none`: there may be no rows at all. ONNX Runtime's reductions of nothing keep the axis
    they reduce, so it is cut off.
    """
    name = x.name or "x"
    wide = width >= WIDE_FROM and e.opset >= 13
    row = range_of(e, x, name, zero_point, wide=wide)
    if not uniform:
        row = _poison(e, x, row, name)
    if maybe_none:
        first = [e.vector([i]) for i in (0, 1, -1)]
        row = e.op("Slice", [row, *first], out=f"{name}_one_a_row")
    step = e.scalar(np.float32(1 / (255 - zero_point)), np.float32)
    zero = e.scalar(zero_point, np.uint8)
    if wide:
        flat = e.op("Reshape", [x, e.vector([-1, width])], out=f"{name}_flat")
        scales = e.op("Mul", [row, step], out=f"{name}_row_scale")
        scales = e.op("Reshape", [scales, e.vector([-1])], out=f"{name}_flat_scale")
        zeros = by_sizes.zero_points(x, scales, zero_point)
        q = e.quantize(flat, scales, zeros, f"{name}_flat_quantized", axis=0)
        as_sizes: dict[str, Any] = {"allowzero": 1} if e.opset >= 14 else {}  # not as dims to copy
        q = e.op("Reshape", [q, by_sizes.shape(x)], out=f"{name}_quantized", **as_sizes)
        return QuantizedRows(q, step, zero, row)
    inverse = e.op("Reciprocal", [row], out=f"{name}_inverse")
    ratio = e.op("Mul", [x, inverse], out=f"{name}_ratio")
    q = e.quantize(ratio, step, zero, f"{name}_quantized")
    return QuantizedRows(q, step, zero, row)


def range_of(e: Emitter, x: ir.Value, name: str, zero_point: int, *, wide: bool) -> ir.Value:
    """r [..., 1]: what the largest integer distance from the zero point upwards stands for."""
    if zero_point == 0:
        return e.reduce_last("ReduceMax", x, f"{name}_max")
    if zero_point == SYMMETRIC and not wide:
        return e.reduce_last("ReduceMax", e.op("Abs", [x], out=f"{name}_abs"), f"{name}_range")
    high = e.reduce_last("ReduceMax", x, f"{name}_max")
    low = e.reduce_last("ReduceMin", x, f"{name}_min")
    if zero_point == SYMMETRIC:
        below = e.op("Neg", [low], out=f"{name}_below")
    else:
        ratio = e.scalar(np.float32(-(255 - zero_point) / zero_point), np.float32)
        below = e.op("Mul", [low, ratio], out=f"{name}_below")
    return e.op("Max", [high, below], out=f"{name}_range")


# docs/notes/onnxruntime.md: "The maximum drops NaN"
def _poison(e: Emitter, x: ir.Value, row: ir.Value, name: str) -> ir.Value:
    total = e.reduce_last("ReduceSum", x, f"{name}_sum")
    nothing = e.op("Mul", [total, e.scalar(0.0, np.float32)], out=f"{name}_nan")
    return e.op("Add", [row, nothing], out=f"{name}_row")


def spread_nan(e: Emitter, x: ir.Value, scale: ir.Value) -> ir.Value:
    """Return `scale`, one number for all of `x`; NaN where `x` holds what is not finite."""
    total = e.op("ReduceSum", [x], out=f"{x.name}_sum", keepdims=0)
    nothing = e.op("Mul", [total, e.scalar(0.0, np.float32)], out=f"{x.name}_nan")
    return e.op("Add", [scale, nothing], out=f"{x.name}_marked_scale")


def quantize_tensor(e: Emitter, x: ir.Value) -> QuantizedRows:
    """Quantize `x` with one scale and zero point, named as by ONNX Runtime's quantize_dynamic."""
    name = x.name or "x"
    q, scale, zero = e.op_n(
        "DynamicQuantizeLinear",
        [x],
        outs=(f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"),
        name=f"{name}_QuantizeLinear",
    )
    return QuantizedRows(q, scale, zero, None)


def quantize_images(
    e: Emitter, x: ir.Value, rank: int, zero_point: int = SYMMETRIC
) -> QuantizedRows:
    """x [B, C, ...] of `rank` per image, around a constant zero point; row_scale [B, 1, 1, ...]."""
    name = x.name or "x"
    flat = e.op("Flatten", [x], out=f"{name}_flat", axis=1)
    largest = range_of(e, flat, name, zero_point, wide=False)
    total = e.reduce_last("ReduceSum", flat, f"{name}_sum")
    nothing = e.op("Mul", [total, e.scalar(0.0, np.float32)], out=f"{name}_nan")
    row = e.op("Add", [largest, nothing], out=f"{name}_row")
    row = e.op("Reshape", [row, e.vector([-1] + [1] * (rank - 1))], out=f"{name}_image_scale")
    inverse = e.op("Reciprocal", [row], out=f"{name}_inverse")
    ratio = e.op("Mul", [x, inverse], out=f"{name}_ratio")
    step = e.scalar(np.float32(1 / (255 - zero_point)), np.float32)
    zero = e.scalar(zero_point, np.uint8)
    q = e.quantize(ratio, step, zero, f"{name}_quantized")
    return QuantizedRows(q, step, zero, row)
