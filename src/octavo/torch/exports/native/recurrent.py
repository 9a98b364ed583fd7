"""octavo::recurrent as ai.octavo.LSTM, GRU and RNN, one for each int8 layer of a stack.

    recurrent(x, h0, c0, lengths, weights, ...)  ->  LSTM(x, W, R, biases, ...) ─ Reshape ─ LSTM ...

Layers with a projection, and those in 16 bits and in float, keep their portable form. Where there
are none, x that has the batch first stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from octavo.core.recurrent_weights import Kind, product_biases
from octavo.graph.native.recurrent import (
    GIVEN,
    PackedRows,
    RecurrentLayer,
    recurrent,
    stacked,
    stacked_biases,
)
from octavo.torch.exports.drawing import Drawing, Outputs
from octavo.torch.exports.program import call_of
from octavo.torch.exports.recurrent import Given, draw_layer, draw_stack, layers_of
from octavo.torch.exports.recurrent_weights import Layer


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """y, h and c, as the operator has them; c is None but for an LSTM."""
    call = call_of(node)
    layers = layers_of(call, d)
    as_it_lies = call["batch_first"] and all(_in_kernels(layer) for layer in layers)
    form = partial(_layer, graph=node.graph, layout=int(as_it_lies))
    return draw_stack(node, d, layers, form, turn=call["batch_first"] and not as_it_lies)


def _in_kernels(layer: Layer) -> bool:
    return layer.first.storage == "int8" and "hr" not in layer.first.shapes


def _layer(
    d: Drawing,
    layer: Layer,
    given: Given,
    wanted: Sequence[bool],
    /,
    *,
    out: str,
    name: str,
    graph: ir.Graph | None,
    layout: int,
) -> Sequence[ir.Value | None]:
    if not _in_kernels(layer):
        return draw_layer(d, layer, given, wanted, out=out, name=name)
    way, ways = layer.first, len(layer.ways)
    about = RecurrentLayer(
        way.kind,
        way.inputs,
        way.hidden,
        direction="bidirectional" if ways == 2 else "forward",
        layout=layout,
    )
    count = 3 if way.kind is Kind.LSTM else 2
    outs = [f"{out}_{what}" if w else "" for what, w in zip("yhc", wanted, strict=True)][:count]
    while len(outs) > 1 and not outs[-1]:
        outs.pop()
    turned = [_turned(d, v, layout, f"{out}_{n}") for n, v in zip("hc", given.states, strict=True)]
    read = zip(GIVEN, (given.lengths, *turned), strict=True)
    y, *ends = recurrent(
        d.emitter,
        about,
        given.x,
        _rows(d, layer, "ih", graph),
        _rows(d, layer, "hh", graph),
        _biases(d, layer, graph),
        given={n: v for n, v in read if v is not None},
        name=name,
        outs=outs,
    )
    found = [_sequence(d, y, layer, layout, out) if outs[0] else None]
    for what, v in zip(outs[1:], ends, strict=True):
        found.append(_turned(d, v, layout, f"{what}_turned") if what else None)
    return [*found, *[None] * (count - len(found))]


def _turned(d: Drawing, state: ir.Value | None, layout: int, out: str) -> ir.Value | None:
    """A state [D, B, ...] as the node has it, and back: with layout 1 it is [B, D, ...]."""
    if state is None or layout == 0:
        return state
    return d.emitter.transpose(state, [1, 0, 2], out)


def _sequence(d: Drawing, y: ir.Value, layer: Layer, layout: int, out: str) -> ir.Value:
    """[T, D, B, H] as [T, B, D * H], or [B, T, D, H] as [B, T, D * H]."""
    e, ways = d.emitter, len(layer.ways)
    if layout == 0 and ways == 2:
        y = e.transpose(y, [0, 2, 1, 3], f"{out}_apart")
    elif layout == 0:
        return e.op("Squeeze", [y, e.vector([1])], out=f"{out}_sequence")
    width = ways * layer.first.hidden
    return e.op("Reshape", [y, e.vector([0, 0, width])], out=f"{out}_sequence")


def _rows(d: Drawing, layer: Layer, part: str, graph: ir.Graph | None) -> PackedRows:
    """W ("ih") or R ("hh"): the buffers of all directions, one behind the other."""

    def make() -> PackedRows:
        w, scale, digest = stacked([[way.packed(held, part)] for way, held in layer.each()])
        name = f"{layer.name}.weight_{part}"
        values = (
            d.constant(w, f"{name}_quantized", graph),
            d.constant(scale, f"{name}_scale", graph),
        )
        return PackedRows(*values, digest)

    return d.once(("packed rows", part, graph), layer.stored(), make)


def _biases(d: Drawing, layer: Layer, graph: ir.Graph | None) -> ir.Value:
    """Those of both products, zeros where there are none."""
    kind = layer.first.kind
    none = np.zeros(kind.gates * layer.first.hidden, np.float32)

    def make() -> ir.Value:
        pairs = [
            [held[f"bias_{part}"].numpy() if way.bias else none for part in ("ih", "hh")]
            for way, held in layer.each()
        ]
        both = stacked_biases(kind, [product_biases(kind, *pair) for pair in pairs])
        return d.constant(both, f"{layer.name}.bias", graph)

    return d.once(("biases", graph), layer.stored(), make)
