"""A convolution with integer weights, as ONNX nodes. A row is one image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.emitter import Emitter
from octavo.graph.rows import SYMMETRIC, QuantizedRows, range_of
from octavo.ir.weight import QuantizedWeightValues


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


def conv_integer(
    e: Emitter,
    x: QuantizedRows,
    w: QuantizedWeightValues,
    bias: ir.Value | None,
    attributes: Mapping[str, Any],
    *,
    name: str,
    out: str,
) -> ir.Value:
    """ConvInteger and its scales, named as ONNX Runtime's quantize_dynamic names them.

    `w.scale` is [] or [M, 1, 1, ...], `bias` [1, M, 1, 1, ...].

    `w.zero_point` is a scalar: ConvInteger's weights have one.
    """
    raw = f"{out}_output_quantized"
    product = e.op(
        "ConvInteger",
        [x.q, w.q, x.zero_point, w.zero_point],
        out=raw,
        name=f"{name}_quant",
        **attributes,
    )
    steps = e.op(
        "Cast", [product], out=f"{raw}_cast_output", name=f"{raw}_cast", to=int(ir.DataType.FLOAT)
    )
    scales = e.op(
        "Mul",
        [x.scale, w.scale],
        out=f"{name}_quant_scales_mul:0",
        name=f"{name}_quant_scales_mul",
    )
    plain = bias is None and x.row_scale is None
    y = e.op(
        "Mul",
        [steps, scales],
        out=out if plain else f"{out}quant_scaled_output",
        name=f"{name}_quant_output_scale_mul",
    )
    if x.row_scale is not None:
        y = e.op("Mul", [y, x.row_scale], out=out if bias is None else f"{out}_per_image")
    if bias is not None:
        y = e.op("Add", [y, bias], out=out, name=f"{out}_bias_add")
    return y
