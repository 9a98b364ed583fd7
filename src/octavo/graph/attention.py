"""ONNX Runtime's fused Attention with quantized projections, as ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from octavo.graph.emitter import MS, Emitter
from octavo.graph.linear import linear_rows
from octavo.graph.rows import QuantizedRows
from octavo.ir.weight import QuantizedWeightValues


def attention_rows(
    e: Emitter,
    rows: QuantizedRows,
    w: QuantizedWeightValues,
    bias: ir.Value | None,
    mask: ir.Value | None,
    sizes: Sequence[int],
    attributes: Mapping[str, Any],
    *,
    name: str,
    out: str,
) -> ir.Value:
    """The Q, K, V projections per row, then MultiHeadAttention in float.

    `w` is [K, sum(sizes)], `bias` [sum(sizes)], `mask` a key padding mask [B, S].
    """
    projected = linear_rows(e, rows, w, name=f"{name}_projection", out=f"{out}_qkv")
    q, k, v = e.split(projected, -1, sizes, [f"{out}_q", f"{out}_k", f"{out}_v"])
    return e.op(
        "MultiHeadAttention",
        [q, k, v, bias, mask],
        out=out,
        domain=MS,
        name=name,
        **attributes,
    )


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
