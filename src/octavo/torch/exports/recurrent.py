"""octavo::recurrent: one ONNX operator for each layer of a stack.

    LSTM, int8         com.microsoft.DynamicQuantizeLSTM, one activation scale a step
    LSTM, projection   LSTM over DequantizeLinear(W) and the product R W_hr, then MatMul(W_hr)
    GRU, RNN           GRU or RNN over DequantizeLinear(W), DequantizeLinear(R), in float
    16 bits, float     the same operators over Cast or the weights themselves

ONNX's LSTM has no projection h = W_hr m. Its state is m, and R h = (R W_hr) m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from octavo.core.recurrent_weights import Kind
from octavo.errors import ModelError
from octavo.graph.rnn import dynamic_quantize_lstm
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.program import call_of
from octavo.torch.exports.recurrent_weights import Layer
from octavo.torch.modules._recurrent_weights import Stack

PER_STEP = (
    "activations have one scale a step for the whole batch: ONNX Runtime's DynamicQuantizeLSTM "
    "knows no other"
)
IN_FLOAT = "computed in float, over int8 weights: ONNX Runtime has no integer operator for it"


@dataclass(frozen=True)
class Given:
    """What one layer of a stack reads: x [T, B, inputs], lengths, and states [D, B, ...].

    x of a stack that is drawn with the batch first is [B, T, inputs]; states are as they are.
    """

    x: ir.Value
    lengths: ir.Value | None
    states: Sequence[ir.Value | None]


class LayerForm(Protocol):
    """Draws one layer of a stack."""

    def __call__(
        self,
        d: Drawing,
        layer: Layer,
        given: Given,
        wanted: Sequence[bool],
        /,
        *,
        out: str,
        name: str,
    ) -> Sequence[ir.Value | None]:
        """y [T, B, D * output], h [D, B, output] and for an LSTM c [D, B, hidden].

        y lies as x does. `wanted` says of each whether anything reads it; None may stand for what
        nothing reads.
        """


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """y, h and c, as the operator has them; c is None but for an LSTM."""
    call = call_of(node)
    return draw_stack(node, d, layers_of(call, d), draw_layer, turn=call["batch_first"])


def draw_stack(
    node: ir.Node, d: Drawing, layers: Sequence[Layer], form: LayerForm, *, turn: bool
) -> Outputs:
    """The outputs of `node`, whose layers have that form. `turn`: it takes the steps first."""
    call, e = call_of(node), d.emitter
    out = node.outputs[0].name or "recurrent"
    y: ir.Value | None = d.float32(call["x"], node)
    lengths = call["lengths"]
    if lengths is not None:
        lengths = e.cast(lengths, ir.DataType.INT32, f"{out}_lengths")
    if turn and y is not None:
        y = e.transpose(y, [1, 0, 2], f"{out}_time_first")
    states = [_parts(d, call[key], node, len(layers), f"{out}_{key}") for key in ("h0", "c0")]
    read = [bool(o.uses()) or o.is_graph_output() for o in node.outputs]
    ends: list[Sequence[ir.Value | None]] = []
    for i, layer in enumerate(layers):
        assert y is not None  # every layer but the last is asked for it
        given = Given(y, lengths, [part[i] for part in states])
        wanted = [read[0] or i + 1 < len(layers), *read[1:]]
        y, *end = form(d, layer, given, wanted, out=f"{out}_l{i}", name=node.name or out)
        ends.append(end)
    if turn and y is not None and read[0]:
        y = e.transpose(y, [1, 0, 2], f"{out}_batch_first")
    found = [y]
    for value, parts in zip(node.outputs[1:], zip(*ends, strict=True), strict=False):
        name = f"{value.name}_layers"
        joined = len(parts) > 1 and bool(value.uses() or value.is_graph_output())
        found.append(e.op("Concat", parts, out=name, axis=0) if joined else parts[0])
    lasts = zip(found, node.outputs, read, strict=False)
    kinds = [
        d.in_kind(v, call["x"], o.name or out) if v is not None and wanted else None
        for v, o, wanted in lasts
    ]
    return [*kinds, *[None] * (len(node.outputs) - len(kinds))]


def layers_of(call: dict[str, Any], d: Drawing) -> list[Layer]:
    """The layers of the stack that `call` runs."""
    stack = Stack(
        Kind(call["kind"]),
        call["inputs"],
        call["hidden"],
        call["output"],
        call["bidirectional"],
        call["bias"],
        tuple(call["storage"].split(",")),
    )
    values = iter(call["weights"])
    name = layer_of(call["weights"][0])
    count = 2 if stack.bidirectional else 1
    ways = list(stack.ways())
    held = [{n: d.tensor(next(values)) for n in way.names()} for way in ways]
    return [
        Layer(
            ways[i : i + count],
            held[i : i + count],
            f"{name}.l{i // count}" if len(ways) > count else name,
        )
        for i in range(0, len(ways), count)
    ]


def _parts(
    d: Drawing, state: ir.Value | None, node: ir.Node, layers: int, name: str
) -> Sequence[ir.Value | None]:
    """A state [layers * directions, B, ...] layer by layer."""
    if state is None:
        return [None] * layers
    wide = d.float32(state, node)
    if layers == 1:
        return [wide]
    outs = [f"{name}_{i}" for i in range(layers)]
    return d.emitter.op_n("Split", [wide], outs=outs, axis=0, num_outputs=layers)


def draw_layer(
    d: Drawing, layer: Layer, given: Given, wanted: Sequence[bool], /, *, out: str, name: str
) -> Sequence[ir.Value | None]:
    """The form of one layer, whose x is [T, B, inputs]. All outputs are drawn."""
    way, ways = layer.first, len(layer.ways)
    attributes = {
        "hidden_size": way.hidden,
        "direction": "bidirectional" if ways == 2 else "forward",
    }
    lstm = way.kind is Kind.LSTM
    outs = [f"{out}_{what}" for what in ("y", "h", "c")[: 3 if lstm else 2]]
    rest = [layer.bias(d), given.lengths, *given.states]
    if lstm and way.storage == "int8" and "hr" not in way.shapes:
        d.note(layer.name, PER_STEP)
        w, r = layer.columns("ih", d), layer.columns("hh", d)
        ends = dynamic_quantize_lstm(
            d.emitter, given.x, w, r, [*rest, None], attributes, name=name, outs=outs
        )
    else:
        ends = _in_float(d, layer, [given.x, *rest], attributes, outs, name)
    return [_joined(d, ends[0], ways, out), *ends[1:]]


def _in_float(
    d: Drawing,
    layer: Layer,
    given: Sequence[ir.Value | None],
    attributes: dict[str, Any],
    outs: Sequence[str],
    name: str,
) -> Sequence[ir.Value]:
    """ONNX's own operator of `given`: x, bias, lengths, h0, c0. y is [T, D, B, output]."""
    e, way = d.emitter, layer.first
    if way.storage == "int8":
        d.note(layer.name, IN_FLOAT)
    x, bias, lengths, h0, c0 = given
    w, r = layer.shaped("ih", d), layer.shaped("hh", d)
    back = None
    if "hr" in way.shapes:
        hr = layer.shaped("hr", d)
        r = e.op("MatMul", [r, hr], out=f"{outs[0]}_state_weight")
        back = e.transpose(hr, [0, 2, 1], f"{outs[0]}_projection")
        h0 = None if h0 is None else _unprojected(d, layer, h0, outs[0])
    inputs = [x, w, r, bias, lengths, h0, *([c0] if way.kind is Kind.LSTM else [])]
    while inputs[-1] is None:
        inputs.pop()
    op_type, more = _operator(way.kind, len(layer.ways))
    ends = e.op_n(op_type, inputs, outs=outs, name=name, **attributes, **more)
    if back is None:
        return ends
    y, h = (e.op("MatMul", [v, back], out=f"{v.name}_projected") for v in ends[:2])
    return [y, h, *ends[2:]]


def _operator(kind: Kind, ways: int) -> tuple[str, dict[str, Any]]:
    if kind is Kind.LSTM:
        return "LSTM", {}
    if kind in (Kind.GRU, Kind.GRU_RESET_FIRST):
        return "GRU", {"linear_before_reset": int(kind is Kind.GRU)}
    return "RNN", {"activations": ["Tanh" if kind is Kind.RNN_TANH else "Relu"] * ways}


def _joined(d: Drawing, y: ir.Value, ways: int, out: str) -> ir.Value:
    """[T, D, B, H] as [T, B, D * H]."""
    e = d.emitter
    if ways == 1:
        return e.op("Squeeze", [y, e.vector([1])], out=f"{out}_sequence")
    turned = e.transpose(y, [0, 2, 1, 3], f"{out}_turned")
    return e.op("Reshape", [turned, e.vector([0, 0, -1])], out=f"{out}_sequence")


def _unprojected(d: Drawing, layer: Layer, h0: ir.Value, out: str) -> ir.Value:
    """An m with W_hr m = h0, for each direction."""
    w = layer.projection().astype(np.float64)
    if min(np.linalg.matrix_rank(part) for part in w) < w.shape[1]:
        raise ModelError(
            f"{layer.name}: rows of its projection depend on each other, so that an initial state "
            "has no form in ONNX's LSTM; leave the state out, or leave this layer float"
        )
    back = np.stack([np.linalg.pinv(part).T for part in w]).astype(np.float32)
    known = d.constant(back, f"{layer.name}.projection_inverse")
    return d.emitter.op("MatMul", [h0, known], out=f"{out}_unprojected")
