"""octavo::recurrent: one operator for each layer of a stack.

    int8               LSTM, GRU or RNN of ai.octavo
    LSTM, projection   LSTM over DequantizeLinear(W) and the product R W_hr, then MatMul(W_hr)
    16 bits, float     ONNX's own operators over Cast or the weights themselves

ONNX's LSTM has no projection h = W_hr m. Its state is m, and R h = (R W_hr) m. Where all layers are
int8, x that has the batch first stays so for target native.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.core.recurrent_weights import Kind
from octavo.errors import ModelError
from octavo.graph.lower.recurrent import IN_FLOAT
from octavo.ir.recurrent import Recurrent, RecurrentCell, stack_directions
from octavo.ir.weight import Weight, WeightIntegers
from octavo.torch.exports.program import call_of
from octavo.torch.exports.reading import ExportContext, Outputs, layer_of
from octavo.torch.exports.recurrent_weights import StackLayer
from octavo.torch.layers.recurrent_weights import RecurrentStack


@dataclass(frozen=True)
class Given:
    """What one layer of a stack reads: x [T, B, inputs], lengths, and states [D, B, ...].

    x of a stack that is read with the batch first is [B, T, inputs]; states are as they are.
    """

    x: ir.Value
    lengths: ir.Value | None
    states: Sequence[ir.Value | None]


def read_recurrent(node: ir.Node, c: ExportContext) -> Outputs:
    """y, h and c, as the operator of PyTorch has them; c is None but for an LSTM."""
    call, e = call_of(node), c.emitter
    layers = layers_of(call, c)
    as_it_lies = call["batch_first"] and c.native and all(_in_kernels(layer) for layer in layers)
    time_first = call["batch_first"] and not as_it_lies
    out = node.outputs[0].name or "recurrent"
    y: ir.Value | None = c.float32(call["x"], node)
    lengths = call["lengths"]
    if lengths is not None:
        lengths = e.cast(lengths, ir.DataType.INT32, f"{out}_lengths")
    if time_first and y is not None:
        y = e.transpose(y, [1, 0, 2], f"{out}_time_first")
    states = [_parts(c, call[key], node, len(layers), f"{out}_{key}") for key in ("h0", "c0")]
    read = [bool(o.uses()) or o.is_graph_output() for o in node.outputs]
    ends: list[Sequence[ir.Value | None]] = []
    for i, layer in enumerate(layers):
        assert y is not None  # every layer but the last is asked for it
        given = Given(y, lengths, [part[i] for part in states])
        wanted = [read[0] or i + 1 < len(layers), *read[1:]]
        name, outs = node.name or out, f"{out}_l{i}"
        if _in_kernels(layer):
            y, *end = _operator(c, layer, given, wanted, outs, name, layout=int(as_it_lies))
        else:
            y, *end = _stock_layer(c, layer, given, outs, name)
        ends.append(end)
    if time_first and y is not None and read[0]:
        y = e.transpose(y, [1, 0, 2], f"{out}_batch_first")
    found = [y]
    for value, parts in zip(node.outputs[1:], zip(*ends, strict=True), strict=False):
        name = f"{value.name}_layers"
        joined = len(parts) > 1 and bool(value.uses() or value.is_graph_output())
        found.append(e.op("Concat", parts, out=name, axis=0) if joined else parts[0])
    lasts = zip(found, node.outputs, read, strict=False)
    kinds = [
        c.in_kind(v, call["x"], o.name or out) if v is not None and wanted else None
        for v, o, wanted in lasts
    ]
    return [*kinds, *[None] * (len(node.outputs) - len(kinds))]


def layers_of(call: dict[str, Any], c: ExportContext) -> list[StackLayer]:
    """Return the layers of the recurrent stack that `call` runs."""
    stack = RecurrentStack(
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
    ways = list(stack.directions())
    held = [{n: c.tensor(next(values)) for n in way.names()} for way in ways]
    return [
        StackLayer(
            ways[i : i + count],
            held[i : i + count],
            f"{name}.l{i // count}" if len(ways) > count else name,
        )
        for i in range(0, len(ways), count)
    ]


def _parts(
    c: ExportContext, state: ir.Value | None, node: ir.Node, layers: int, name: str
) -> Sequence[ir.Value | None]:
    """Split a state [layers * directions, B, ...] into one part for each layer."""
    if state is None:
        return [None] * layers
    wide = c.float32(state, node)
    if layers == 1:
        return [wide]
    outs = [f"{name}_{i}" for i in range(layers)]
    return c.emitter.op_n("Split", [wide], outs=outs, axis=0, num_outputs=layers)


def _in_kernels(layer: StackLayer) -> bool:
    return layer.first.storage == "int8" and "hr" not in layer.first.shapes


def _operator(
    c: ExportContext,
    layer: StackLayer,
    given: Given,
    wanted: Sequence[bool],
    out: str,
    name: str,
    *,
    layout: int,
) -> Sequence[ir.Value | None]:
    """y, h and c of an int8 layer, None for what is not `wanted`."""
    way = layer.first
    direction = "bidirectional" if len(layer.ways) == 2 else "forward"
    cell = RecurrentCell(way.kind, way.inputs, way.hidden, direction, layout)
    count = 3 if way.kind is Kind.LSTM else 2
    outs = [f"{out}_{what}" if w else "" for what, w in zip("yhc", wanted, strict=True)][:count]
    while len(outs) > 1 and not outs[-1]:
        outs.pop()
    h, state = (
        _ordered(c, v, layout, f"{out}_{n}") for n, v in zip("hc", given.states, strict=True)
    )
    w, r = (_weight(c, layer, part) for part in ("ih", "hh"))
    operator = Recurrent(
        cell, given.x, w, r, layer.biases(), given.lengths, h, state, count=len(outs)
    )
    y, *ends = c.put(operator, name=name, outs=outs, layer=layer.name)
    found = [_sequence(c, y, layer, layout, out) if outs[0] else None]
    for what, v in zip(outs[1:], ends, strict=True):
        found.append(_ordered(c, v, layout, f"{what}_ordered") if what else None)
    return [*found, *[None] * (count - len(found))]


def _ordered(c: ExportContext, state: ir.Value | None, layout: int, out: str) -> ir.Value | None:
    """Transpose a state between [D, B, ...] and layout 1's [B, D, ...]; keep it for layout 0."""
    if state is None or layout == 0:
        return state
    return c.emitter.transpose(state, [1, 0, 2], out)


def _sequence(c: ExportContext, y: ir.Value, layer: StackLayer, layout: int, out: str) -> ir.Value:
    """Return [T, D, B, H] as [T, B, D * H], or [B, T, D, H] as [B, T, D * H]."""
    e, ways = c.emitter, len(layer.ways)
    if layout == 0 and ways == 2:
        y = e.transpose(y, [0, 2, 1, 3], f"{out}_apart")
    elif layout == 0:
        return e.op("Squeeze", [y, e.vector([1])], out=f"{out}_sequence")
    width = ways * layer.first.output
    return e.op("Reshape", [y, e.vector([0, 0, width])], out=f"{out}_sequence")


def _weight(c: ExportContext, layer: StackLayer, part: str) -> Weight:
    """W ("ih") or R ("hh"): the buffers of all directions, one behind the other."""
    n, k = layer.first.shapes[part]

    def make() -> WeightIntegers:
        found = [way.integers(held, part) for way, held in layer.each()]
        return WeightIntegers(
            np.stack([q.numpy() for q, _ in found]), np.stack([s.numpy() for _, s in found])
        )

    return c.weight(
        f"{layer.name}.weight_{part}",
        (len(layer.ways), n, k),
        [held[f"{what}_{part}"] for held in layer.held for what in ("packed", "scale")],
        make,
        lambda: stack_directions([[way.packed(held, part)] for way, held in layer.each()]),
    )


def _stock_layer(
    c: ExportContext, layer: StackLayer, given: Given, out: str, name: str
) -> Sequence[ir.Value | None]:
    """Build a layer that no operator of Octavo holds, for x [T, B, inputs]; return all outputs."""
    way, ways = layer.first, len(layer.ways)
    attributes = {
        "hidden_size": way.hidden,
        "direction": "bidirectional" if ways == 2 else "forward",
    }
    outs = [f"{out}_{what}" for what in ("y", "h", "c")[: 3 if way.kind is Kind.LSTM else 2]]
    read = [given.x, layer.bias(c), given.lengths, *given.states]
    y, *ends = _in_float(c, layer, read, attributes, outs, name)
    return [_sequence(c, y, layer, 0, out), *ends]


def _in_float(
    c: ExportContext,
    layer: StackLayer,
    given: Sequence[ir.Value | None],
    attributes: dict[str, Any],
    outs: Sequence[str],
    name: str,
) -> Sequence[ir.Value]:
    """ONNX's own operator of `given`: x, bias, lengths, h0, c0. y is [T, D, B, output]."""
    e, way = c.emitter, layer.first
    if way.storage == "int8":
        c.note(layer.name, IN_FLOAT)
    x, bias, lengths, h0, c0 = given
    w, r = layer.shaped("ih", c), layer.shaped("hh", c)
    back = None
    if "hr" in way.shapes:
        hr = layer.shaped("hr", c)
        r = e.op("MatMul", [r, hr], out=f"{outs[0]}_state_weight")
        back = e.transpose(hr, [0, 2, 1], f"{outs[0]}_projection")
        h0 = None if h0 is None else _unprojected(c, layer, h0, outs[0])
    inputs = [x, w, r, bias, lengths, h0, *([c0] if way.kind is Kind.LSTM else [])]
    while inputs[-1] is None:
        inputs.pop()
    op_type, more = _stock_operator(way.kind, len(layer.ways))
    ends = e.op_n(op_type, inputs, outs=outs, name=name, **attributes, **more)
    if back is None:
        return ends
    y, h = (e.op("MatMul", [v, back], out=f"{v.name}_projected") for v in ends[:2])
    return [y, h, *ends[2:]]


def _stock_operator(kind: Kind, ways: int) -> tuple[str, dict[str, Any]]:
    if kind is Kind.LSTM:
        return "LSTM", {}
    if kind in (Kind.GRU, Kind.GRU_RESET_FIRST):
        return "GRU", {"linear_before_reset": int(kind is Kind.GRU)}
    return "RNN", {"activations": ["Tanh" if kind is Kind.RNN_TANH else "Relu"] * ways}


def _unprojected(c: ExportContext, layer: StackLayer, h0: ir.Value, out: str) -> ir.Value:
    """Return an m with W_hr m = h0, for each direction."""
    w = layer.projection().astype(np.float64)
    if min(np.linalg.matrix_rank(part) for part in w) < w.shape[1]:
        raise ModelError(
            f"{layer.name}: rows of its projection depend on each other, so that an initial state "
            "has no form in ONNX's LSTM; leave the state out, or leave this layer float"
        )
    back = np.stack([np.linalg.pinv(part).T for part in w]).astype(np.float32)
    known = c.hold(back, f"{layer.name}.projection_inverse")
    return c.emitter.op("MatMul", [h0, known], out=f"{out}_unprojected")
