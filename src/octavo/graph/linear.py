"""A linear layer `x @ W`, quantized, as ONNX nodes. W is [K, N] or batched [..., K, N]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.emitter import MS, Emitter
from octavo.graph.rows import QuantizedRows
from octavo.ir.weight import QuantizedWeightValues


def linear_rows(
    e: Emitter, rows: QuantizedRows, w: QuantizedWeightValues, *, name: str, out: str
) -> ir.Value:
    """MatMulIntegerToFloat, then the row scale.

    MatMulInteger -> Cast -> Mul(row * column) would be fused at load with the row scale taken
    wrongly for inputs of rank 3, so the fused operator is written out.
    """
    product = e.op(
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
    """The nodes and names of ONNX Runtime's quantize_dynamic; its loader fuses them."""
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


def linear_qdq(
    e: Emitter, x: ir.Value, w: ir.Value, op_type: str, *, name: str, out: str
) -> ir.Value:
    """The float operator over a dequantized activation and a dequantized weight."""
    return e.op(op_type, [x, w], out=out, name=name)


@dataclass(frozen=True)
class BlockWeightValues:
    """A weight in blocks: `q` uint8 [N, blocks, block] with zero at 128, `scale` [N * blocks]."""

    q: ir.Value
    scale: ir.Value
    inputs: int
    outputs: int
    block: int


def linear_block(e: Emitter, x: ir.Value, w: BlockWeightValues, *, name: str, out: str) -> ir.Value:
    """MatMulNBits with 8 bits; accuracy level 4 multiplies integers."""
    return e.op(
        "MatMulNBits",
        [x, w.q, w.scale],
        out=out,
        name=name,
        domain=MS,
        K=w.inputs,
        N=w.outputs,
        bits=8,
        block_size=w.block,
        accuracy_level=4,
    )


def matmul_rows_by_activation(
    e: Emitter, a: QuantizedRows, b: QuantizedRows, *, name: str, out: str
) -> ir.Value:
    """A product of two activations: `a` per row, `b` with one scale for all of it."""
    w = QuantizedWeightValues(b.q, b.scale, b.zero_point)
    return linear_rows(e, a, w, name=name, out=out)


def dequantize(
    e: Emitter, w: QuantizedWeightValues, *, out: str, axis: int | None = None
) -> ir.Value:
    """DequantizeLinear; `axis` for one scale a channel (opset 13 and later)."""
    inputs = [w.q, w.scale, w.zero_point]
    if axis is None:
        return e.op("DequantizeLinear", inputs, out=out)
    return e.op("DequantizeLinear", inputs, out=out, axis=axis)


def qdq_activation(e: Emitter, x: ir.Value, t: QuantizedRows) -> ir.Value:
    """`x` through the DynamicQuantizeLinear that gives `t`, and a DequantizeLinear of its own."""
    return e.op("DequantizeLinear", [t.q, t.scale, t.zero_point], out=f"{x.name}_dequantized")


def scale_output(e: Emitter, y: ir.Value, factor: float, out: str) -> ir.Value:
    """`factor * y`."""
    return e.op("Mul", [y, e.scalar(np.float32(factor), np.float32)], out=out)
