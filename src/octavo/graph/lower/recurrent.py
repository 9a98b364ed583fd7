"""LSTM, GRU and RNN with stock operators.

    LSTM      DynamicQuantizeLSTM, one activation scale a step
    GRU, RNN  GRU or RNN over DequantizeLinear(W), DequantizeLinear(R), in float

Neither has a batch-first layout: Transposes stand around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.recurrent_weights import ONNX_GRU, ONNX_LSTM, Kind, permute_gates
from octavo.graph.context import Context
from octavo.graph.lower.linear import FIRST_WITH_AXIS
from octavo.graph.lower.products import dequantize, dynamic_quantize_lstm
from octavo.ir.operator import LAYER
from octavo.ir.recurrent import Recurrent
from octavo.ir.weight import QuantizedWeightValues, Weight, WeightIntegers

PER_STEP_NOTE = (
    "activations have one scale a step for the whole batch: ONNX Runtime's DynamicQuantizeLSTM "
    "knows no other"
)
IN_FLOAT = "computed in float, over int8 weights: ONNX Runtime has no integer operator for it"
STORED_FLOAT = "stored in float: before opset 13 DequantizeLinear has no scale a row"
GATES = {"LSTM": ONNX_LSTM, "GRU": ONNX_GRU, "RNN": (0,)}
"""PyTorch's gates by their places in each operator of ONNX: for `permute_gates`."""


def lower(layer: Recurrent, node: ir.Node, c: Context) -> list[ir.Value | None]:
    """Y, Y_h and for an LSTM Y_c."""
    e, name, batch_first = c.emitter, node.name or "recurrent", layer.cell.layout == 1

    def time_first(value: ir.Value | None) -> ir.Value | None:
        if value is None or not batch_first:
            return value
        return e.transpose(value, [1, 0, 2], f"{value.name}_time_first")

    states = [time_first(v) for v in (layer.initial_h, layer.initial_c)]
    x = time_first(layer.x)
    rest = [_bias(layer, c, name), layer.sequence_lens, *states]
    outs = [f"{o.name}_raw" if o.name else "" for o in node.outputs]
    label = node.meta.get(LAYER, name)
    ends = _operator(layer, [x, *rest], c, name, label, outs)
    if batch_first:
        perms = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        return [
            e.transpose(end, perms[i], f"{end.name}_batch_first") if outs[i] else None
            for i, end in enumerate(ends)
        ]
    return [end if out else None for end, out in zip(ends, outs, strict=True)]


def _operator(
    layer: Recurrent,
    given: Sequence[ir.Value | None],
    c: Context,
    name: str,
    label: str,
    outs: Sequence[str],
) -> Sequence[ir.Value]:
    """Build the operator that reads `given`: x, bias, lengths, initial h and c."""
    cell = layer.cell
    attributes: dict[str, Any] = {"hidden_size": cell.hidden, "direction": cell.direction}
    if cell.clip:
        attributes["clip"] = cell.clip
    x, *rest = given
    assert x is not None
    if cell.kind is Kind.LSTM:
        c.note(label, PER_STEP_NOTE)
        w, r = (_columns(layer, part, c) for part in (layer.w, layer.r))
        return dynamic_quantize_lstm(
            c.emitter, x, w, r, [*rest, None], attributes, name=name, outs=outs
        )
    c.note(label, IN_FLOAT)
    if cell.kind in (Kind.GRU, Kind.GRU_RESET_FIRST):
        attributes["linear_before_reset"] = int(cell.kind is Kind.GRU)
    if cell.kind is Kind.RNN_RELU:
        attributes["activations"] = ["Relu"] * (2 if cell.direction == "bidirectional" else 1)
    weights = [_rows(layer, part, c, label) for part in (layer.w, layer.r)]
    inputs = [x, *weights, *rest[:3]]
    while inputs[-1] is None:
        inputs.pop()
    return c.emitter.op_n(layer.op, inputs, outs=outs, name=name, **attributes)


def onnx_gates(layer: Recurrent) -> tuple[int, ...]:
    """Return the order in which ONNX has PyTorch's gates."""
    return tuple(int(i) for i in np.argsort(GATES[layer.op]))


def _integers(
    layer: Recurrent, part: Weight
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Return integers [D, gates * H, inputs] and scales [D, gates * H], gates in ONNX's order."""
    found, order = part.integers(), onnx_gates(layer)
    return (
        np.stack([permute_gates(way, order) for way in found.q]),
        np.stack([permute_gates(way, order) for way in found.scale]),
    )


def _columns(layer: Recurrent, part: Weight, c: Context) -> QuantizedWeightValues:
    """Integers as DynamicQuantizeLSTM has them: [D, inputs, 4H], scales [D, 4H]."""

    def make() -> QuantizedWeightValues:
        q, scale = _integers(layer, part)
        return c.hold_integers(
            part, WeightIntegers(np.ascontiguousarray(q.transpose(0, 2, 1)), scale)
        )

    return c.once(("columns", part.key), make)


def _rows(layer: Recurrent, part: Weight, c: Context, label: str) -> ir.Value:
    """float32 [D, gates * H, inputs], from integers behind it."""
    e = c.emitter
    if c.opset < FIRST_WITH_AXIS:
        c.note(label, STORED_FLOAT)

        def wide() -> ir.Value:
            q, scale = _integers(layer, part)
            return c.hold(q * scale[:, :, None], f"{part.name}_float")

        return c.once(("float", part.key), wide)

    def make() -> QuantizedWeightValues:
        q, scale = _integers(layer, part)
        flat = WeightIntegers(q.reshape(-1, q.shape[-1]), scale.reshape(-1))
        return c.hold_integers(part, flat, unsigned=False)

    w = c.once(("rows", part.key), make)
    rows = dequantize(e, w, out=f"{part.name}_float", axis=0)
    return e.op("Reshape", [rows, e.vector(part.shape)], out=f"{part.name}_shaped")


def _bias(layer: Recurrent, c: Context, name: str) -> ir.Value | None:
    """Hold the bias [D, 2 * gates * H], the inputs' before the state's; None where all is 0."""
    if not np.any(layer.biases):
        return None
    order = onnx_gates(layer)
    ordered = np.stack(
        [np.concatenate([permute_gates(b, order) for b in way]) for way in layer.biases]
    )
    key = ("bias", ordered.shape, ordered.tobytes())
    return c.once(key, lambda: c.hold(ordered, f"{name}_bias"))
