"""An LSTM with int8 weights, as ONNX Runtime's own operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from octavo.graph.emitter import MS, Emitter
from octavo.ir.weight import QuantizedWeightValues


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
