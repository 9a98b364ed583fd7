"""An embedding lookup over an int8 table, as ONNX nodes."""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.emitter import Emitter
from octavo.graph.linear import QuantizedWeightValues


def lookup_rows(
    e: Emitter, table: ir.Value, row_scales: ir.Value, indices: ir.Value, *, name: str, out: str
) -> ir.Value:
    """`float(table[i]) * row_scales[i]`: table int8 [V, ...], row_scales float32 [V, 1, ...]."""
    picked = e.op("Gather", [table, indices], out=f"{out}_quantized", name=name, axis=0)
    scales = e.op("Gather", [row_scales, indices], out=f"{out}_scale", axis=0)
    steps = e.cast(picked, ir.DataType.FLOAT, f"{out}_steps")
    return e.op("Mul", [steps, scales], out=out, name=f"{name}_dequantize")


def lookup_per_tensor(
    e: Emitter, table: QuantizedWeightValues, indices: ir.Value, *, name: str, out: str
) -> ir.Value:
    """Gather, then DequantizeLinear with the table's one scale."""
    picked = e.op("Gather", [table.q, indices], out=f"{out}_quantized", name=name, axis=0)
    return e.op(
        "DequantizeLinear",
        [picked, table.scale, table.zero_point],
        out=out,
        name=f"{out}_DequantizeLinear",
    )
