"""ai.octavo.LSTM, GRU and RNN with ONNX Runtime's operators.

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

from octavo.core.recurrent_weights import Kind, permute_gates
from octavo.graph.linear import dequantize
from octavo.graph.native.recurrent import (
    OPS,
    PackedRows,
    RecurrentNode,
    unstacked,
    unstacked_biases,
)
from octavo.graph.rnn import dynamic_quantize_lstm
from octavo.onnx.native._recurrent import GATES
from octavo.onnx.rules.lstm import PER_STEP_NOTE
from octavo.onnx.targets.to_portable.linear import FIRST_WITH_AXIS
from octavo.onnx.targets.turning import Outputs, Turning

IN_FLOAT = "computed in float, over int8 weights: ONNX Runtime has no integer operator for it"
STORED_FLOAT = "stored in float: before opset 13 DequantizeLinear has no scale a row"


def draw(node: ir.Node, t: Turning) -> Outputs:
    """Y, Y_h and for an LSTM Y_c."""
    found = RecurrentNode.of(node)
    assert found is not None
    t.names.nodes.free(node.name)
    e, name, batch_first = t.emitter, node.name or "recurrent", found.layer.layout == 1

    def time_first(value: ir.Value | None) -> ir.Value | None:
        if value is None or not batch_first:
            return value
        return e.transpose(value, [1, 0, 2], f"{value.name}_time_first")

    given = found.given
    states = [time_first(given.get(key)) for key in ("initial_h", "initial_c")]
    x = time_first(found.x)
    assert x is not None
    rest = [_bias(found, t), given.get("sequence_lens"), *states]
    outs = [f"{o.name}_raw" if o.name else "" for o in node.outputs]
    ends = _operator(found, [x, *rest], t, name, outs)
    if batch_first:
        perms = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        return [
            e.transpose(end, perms[i], f"{end.name}_batch_first") if outs[i] else None
            for i, end in enumerate(ends)
        ]
    return [end if out else None for end, out in zip(ends, outs, strict=True)]


def _operator(
    found: RecurrentNode,
    given: Sequence[ir.Value | None],
    t: Turning,
    name: str,
    outs: Sequence[str],
) -> Sequence[ir.Value]:
    """The operator of `given`: x, bias, lengths, initial h and c."""
    layer = found.layer
    attributes: dict[str, Any] = {"hidden_size": layer.hidden, "direction": layer.direction}
    if layer.clip:
        attributes["clip"] = layer.clip
    x, *rest = given
    assert x is not None
    if layer.kind is Kind.LSTM:
        t.note(name, PER_STEP_NOTE)
        w, r = (_columns(found, part, t) for part in (found.w, found.r))
        return dynamic_quantize_lstm(
            t.emitter, x, w, r, [*rest, None], attributes, name=name, outs=outs
        )
    t.note(name, IN_FLOAT)
    if layer.kind in (Kind.GRU, Kind.GRU_RESET_FIRST):
        attributes["linear_before_reset"] = int(layer.kind is Kind.GRU)
    if layer.kind is Kind.RNN_RELU:
        attributes["activations"] = ["Relu"] * (2 if layer.direction == "bidirectional" else 1)
    weights = [_rows(found, part, t, name) for part in (found.w, found.r)]
    inputs = [x, *weights, *rest[:3]]
    while inputs[-1] is None:
        inputs.pop()
    return t.emitter.op_n(OPS[layer.kind], inputs, outs=outs, name=name, **attributes)


def _integers(
    found: RecurrentNode, part: PackedRows, t: Turning
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """[D, gates * H, inputs] and [D, gates * H], gates in ONNX's order."""
    of_state = part is found.r
    q, scale = unstacked(found.layer, t.array(part.w), t.array(part.scale), of_state=of_state)
    t.constants.release(part.w)
    order = _order(found)
    return (
        np.stack([permute_gates(way, order) for way in q]),
        np.stack([permute_gates(way, order) for way in scale]),
    )


def _order(found: RecurrentNode) -> tuple[int, ...]:
    """In which order of PyTorch's gates ONNX has its own."""
    return tuple(int(i) for i in np.argsort(GATES[OPS[found.layer.kind]]))


def _columns(found: RecurrentNode, part: PackedRows, t: Turning) -> Any:
    """Integers as DynamicQuantizeLSTM has them: [D, inputs, 4H], scales [D, 4H]."""

    def make() -> Any:
        q, scale = _integers(found, part, t)
        turned = np.ascontiguousarray(q.transpose(0, 2, 1))
        like = (part.w, part.scale, part.scale)
        return t.integers(turned, scale, np.zeros(scale.shape, np.int8), like)

    return t.once(("columns", part.w), make)


def _rows(found: RecurrentNode, part: PackedRows, t: Turning, name: str) -> ir.Value:
    """float32 [D, gates * H, inputs], from integers behind it."""
    q, scale = _integers(found, part, t)
    if t.opset < FIRST_WITH_AXIS:
        t.note(name, STORED_FLOAT)
        wide = q * scale[:, :, None]
        return t.once(("float", part.w), lambda: t.hold(wide, f"{part.w.name}_float"))
    flat, scales = q.reshape(-1, q.shape[-1]), scale.reshape(-1)
    like = (part.w, part.scale, part.scale)
    zeros = np.zeros(scales.shape, np.int8)
    w = t.once(("rows", part.w), lambda: t.integers(flat, scales, zeros, like, unsigned=False))
    e = t.emitter
    rows = dequantize(e, w, out=f"{part.w.name}_float", axis=0)
    return e.op("Reshape", [rows, e.vector(q.shape)], out=f"{part.w.name}_shaped")


def _bias(found: RecurrentNode, t: Turning) -> ir.Value | None:
    """[D, 2 * gates * H], that of the inputs before that of the state; None where it is 0."""
    both = unstacked_biases(found.layer, t.array(found.bias))
    if not np.any(both):
        return None
    order = _order(found)
    turned = [np.concatenate([permute_gates(b, order) for b in way]) for way in both]
    return t.once(("bias", found.bias), lambda: t.hold(np.stack(turned), found.bias.name))
