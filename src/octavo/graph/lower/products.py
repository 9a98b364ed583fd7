"""Integer products of stock ONNX Runtime as nodes: linear layers, convolutions, attentions.

A linear layer's W is [K, N] or batched [..., K, N].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.emit.emitter import Emitter
from octavo.graph.emit.rows import QuantizedRows
from octavo.ir import MS
from octavo.ir.weight import QuantizedWeightValues


def linear_rows(
    e: Emitter, rows: QuantizedRows, w: QuantizedWeightValues, *, name: str, out: str
) -> ir.Value:
    """MatMulIntegerToFloat, then the row scale.

    MatMulInteger -> Cast -> Mul(row * column) would be fused at load with the row scale taken
    wrongly for inputs of rank 3, so the fused operator is written out.
    """
    product = e.op(
        # docs/notes/onnxruntime.md: "The fused operator is written out"
        "MatMulIntegerToFloat",
        [rows.q, w.q, rows.scale, w.scale, rows.zero_point, w.zero_point],
        out=out if rows.row_scale is None else f"{out}_per_row",
        domain=MS,
        name=name,
    )
    if rows.row_scale is None:
        return product
    return e.op("Mul", [product, rows.row_scale], out=out, name=f"{name}_row_scale")


def linear_per_tensor(
    e: Emitter, x: QuantizedRows, w: QuantizedWeightValues, *, name: str, out: str
) -> ir.Value:
    """Build the nodes and names of ONNX Runtime's quantize_dynamic, which its loader fuses."""
    raw = f"{out}_output_quantized"
    product = e.op(
        "MatMulInteger",
        [x.q, w.q, x.zero_point, w.zero_point],
        out=raw,
        name=f"{name}_quant",
    )
    scales = e.op(
        "Mul",
        [x.scale, w.scale],
        out=f"{name}_quant_scales_mul:0",
        name=f"{name}_quant_scales_mul",
    )
    as_float = e.op(
        "Cast", [product], out=f"{raw}_cast_output", name=f"{raw}_cast", to=int(ir.DataType.FLOAT)
    )
    return e.op("Mul", [as_float, scales], out=out, name=f"{name}_quant_output_scale_mul")


def dequantize(
    e: Emitter, w: QuantizedWeightValues, *, out: str, axis: int | None = None
) -> ir.Value:
    """DequantizeLinear; `axis` for one scale a channel (opset 13 and later)."""
    inputs = [w.q, w.scale, w.zero_point]
    if axis is None:
        return e.op("DequantizeLinear", inputs, out=out)
    return e.op("DequantizeLinear", inputs, out=out, axis=axis)


def qdq_activation(e: Emitter, x: ir.Value, t: QuantizedRows) -> ir.Value:
    """Dequantize `t`, a DynamicQuantizeLinear's of `x`, by a DequantizeLinear of its own."""
    return e.op("DequantizeLinear", [t.q, t.scale, t.zero_point], out=f"{x.name}_dequantized")


def scale_output(e: Emitter, y: ir.Value, factor: float, out: str) -> ir.Value:
    """Compute `factor * y`."""
    return e.op("Mul", [y, e.scalar(np.float32(factor), np.float32)], out=out)


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


def attention_per_tensor(
    e: Emitter,
    x: QuantizedRows,
    w: QuantizedWeightValues,
    bias: ir.Value | None,
    mask: ir.Value | None,
    past: ir.Value | None,
    attributes: Mapping[str, Any],
    *,
    name: str,
    outs: Sequence[str],
) -> Sequence[ir.Value]:
    """QAttention: one activation scale for the whole input."""
    inputs = [x.q, w.q, bias, x.scale, w.scale, mask, x.zero_point, w.zero_point, past]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return e.op_n("QAttention", inputs, outs=outs, domain=MS, name=f"{name}_quant", **attributes)


def dynamic_quantize_lstm(
    e: Emitter,
    x: ir.Value,
    w: QuantizedWeightValues,
    r: QuantizedWeightValues,
    rest: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    *,
    name: str,
    outs: Sequence[str],
) -> Sequence[ir.Value]:
    """DynamicQuantizeLSTM over `x` [T, B, I] with `w` [D, I, 4H] and `r` [D, H, 4H] in int8.

    `rest` are B, sequence_lens, initial_h, initial_c, P; scales are float32 [D, 4H] or [D].
    Activations have one scale a step for the whole batch: the operator knows no other.
    """
    weights = [w.scale, w.zero_point, r.scale, r.zero_point]
    return e.op_n(
        "DynamicQuantizeLSTM",
        [x, w.q, r.q, *rest, *weights],
        outs=outs,
        domain=MS,
        name=name,
        **attributes,
    )
