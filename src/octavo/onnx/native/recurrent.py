"""LSTM, GRU and RNN as ai.octavo.LSTM, GRU and RNN.

    LSTM(X, W, R, B, ...)  ->  LSTM(X, W packed, scale, R packed, scale, biases, ...)

W and R have one scale for each row, symmetric; x and h are quantized row by row. Layouts,
directions, lengths and initial states are the operator's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.core.qtype import QType
from octavo.core.recurrent_weights import Kind, permute_gates, product_biases
from octavo.graph.native.recurrent import (
    GIVEN,
    PackedRows,
    RecurrentLayer,
    packed_rows,
    recurrent,
    stacked,
    stacked_biases,
)
from octavo.onnx.native._recurrent import GATES, direction_of, kind_of, refused, ways_of
from octavo.onnx.native.form import NativeForm, without_blocks
from octavo.onnx.native.linear import reference as product
from octavo.onnx.rule import Context, Drawn, attribute_float, attribute_int, input_at
from octavo.onnx.weights import Stats
from octavo.recipe import Granularity, Scheme

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """W or R of one direction: int8 [gates * H, inputs], gates in PyTorch's order, and scales."""

    q: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]

    def product(self, x: npt.NDArray[Any], rows: slice = slice(None)) -> Float64:
        """float64 [B, rows] of `x` [B, inputs], quantized row by row."""
        q, scale = self.q[rows], self.scale[rows]
        return product(x, q, scale, np.zeros(len(q)), np.zeros(len(q)))


def reference(
    kind: Kind,
    x: npt.NDArray[Any],
    w: Weights,
    r: Weights,
    biases: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    h: Float64,
    c: Float64,
    clip: float = 0.0,
) -> tuple[Float64, Float64]:
    """What one step of one direction computes, in float64: (h, c) [B, H] after `x` [B, inputs].

    `biases` are those of x's product and of h's, [gates * H], gates in PyTorch's order. c is that
    of an LSTM; others give it back. What is above `clip` (0: nothing) does not reach a gate.
    """
    n = h.shape[1]
    a, h32 = w.product(x) + biases[0], np.asarray(h, np.float32)
    rz = slice(0, 2 * n)

    def bounded(gate: Float64) -> Float64:
        return np.clip(gate, -clip, clip) if clip else gate

    def sigmoid(gate: Float64) -> Float64:
        found: Float64 = 1.0 / (1.0 + np.exp(-bounded(gate)))
        return found

    def tanh(gate: Float64) -> Float64:
        found: Float64 = np.tanh(bounded(gate))
        return found

    if kind is Kind.LSTM:
        i, f, g, o = np.split(a + r.product(h32) + biases[1], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if kind is Kind.RNN_TANH or kind is Kind.RNN_RELU:
        gate = a + r.product(h32) + biases[1]
        return (tanh(gate) if kind is Kind.RNN_TANH else np.maximum(bounded(gate), 0.0)), c
    reset, update = np.split(sigmoid(a[:, rz] + r.product(h32, rz) + biases[1][rz]), 2, axis=1)
    last, bias = slice(2 * n, None), biases[1][2 * n :]
    if kind is Kind.GRU:
        new = tanh(a[:, last] + reset * (r.product(h32, last) + bias))
    else:
        new = tanh(a[:, last] + r.product((reset * h).astype(np.float32), last) + bias)
    return (1.0 - update) * new + update * h, c


class RecurrentForm(NativeForm):
    """One of the three operators."""

    def takes(self, node: ir.Node, scheme: Scheme, context: Context) -> bool:
        # ONNX Runtime's own operators quantize activations too, or are not there at all.
        return True

    def held(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        weights_only = scheme.activation is None
        scheme, notes = without_blocks(scheme, "recurrent layers")
        if weights_only and not notes:
            notes.append("activations per row: the kernels of recurrent layers take integers")
        scheme, more = super().held(scheme)
        notes += more
        a, w = scheme.activation, scheme.weight
        assert a is not None and w is not None
        if a.granularity is Granularity.GROUP:
            notes.append(f"activations per row: recurrent layers have no groups of {a.group}")
            a = replace(a, granularity=Granularity.ROW, group=None)
        if w.granularity is not Granularity.CHANNEL:
            notes.append("weights per channel: recurrent layers know no other")
            w = replace(w, granularity=Granularity.CHANNEL, observer="minmax", block=None)
        if w.qtype is not QType.INT8 or not w.symmetric:
            notes.append("symmetric int8 weights: recurrent layers know no other")
            w = replace(w, qtype=QType.INT8, symmetric=True)
        return Scheme(w, a), notes

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        return refused(node, context)

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        return _Draft(node, scheme, context, name).draw()


class _Draft:
    """One node while its form is drawn."""

    def __init__(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> None:
        self.node, self.scheme, self.context, self.name = node, scheme, context, name
        w, r = node.inputs[1], node.inputs[2]
        assert w is not None and r is not None
        self.dtype = context.constants.dtype(w) or ir.DataType.FLOAT
        self.order = GATES[node.op_type]
        self.coupled = node.op_type == "LSTM" and attribute_int(node, "input_forget", 0) != 0
        clip = attribute_float(node, "clip", 0.0)
        self.layer = RecurrentLayer(
            kind_of(node),
            inputs=context.constants.shape(w)[2],
            hidden=context.constants.shape(r)[2],
            direction=direction_of(node),
            layout=attribute_int(node, "layout", 0),
            clip=clip if np.isfinite(clip) else 0.0,
        )

    def draw(self) -> Drawn:
        """The node, and Casts around it where the model is not float32."""
        context, node = self.context, self.node
        x, rest = node.inputs[0], {n: input_at(node, 4 + i) for i, n in enumerate(GIVEN)}
        assert x is not None
        given = {
            n: v if n == "sequence_lens" else context.as_float32(v, node, self.dtype)
            for n, v in rest.items()
            if v is not None
        }
        w, w_stats = self._weight(1)
        r, r_stats = self._weight(2)
        plain = self.dtype is ir.DataType.FLOAT
        names = self._wanted()
        results = recurrent(
            context.emitter,
            self.layer,
            context.as_float32(x, node, self.dtype),
            w,
            r,
            context.emitter.constant(self._biases(), f"{self.name}_bias", node.graph),
            given=given,
            name=self.name,
            outs=[n if plain or not n else f"{n}_raw" for n in names],
        )
        outputs = [
            (y if plain else context.from_float32(y, self.dtype, n)) if n else None
            for y, n in zip(results, names, strict=True)
        ]
        return Drawn(outputs, [w_stats, r_stats])

    def _wanted(self) -> list[str]:
        """The outputs that something reads, "" for others: they are not computed."""
        names = [
            (o.name or self.name) if o.uses() or o.is_graph_output() else ""
            for o in self.node.outputs
        ]
        while len(names) > 1 and not names[-1]:
            names.pop()
        return names

    def _weight(self, index: int) -> tuple[PackedRows, Stats | None]:
        """W (1) or R (2) [D, gates * H, inputs], quantized row by row."""
        context, kind = self.context, self.layer.kind
        value = self.node.inputs[index]
        assert value is not None and self.scheme.weight is not None
        ways, rows, k = context.constants.shape(value)

        def make() -> npt.NDArray[np.float32]:
            array = context.weights.float32(value).reshape(ways, rows, k)
            context.constants.release(value)
            return np.concatenate([self._turned(direction) for direction in array])

        def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
            q, scale = w.q.reshape(ways, rows, k), w.qparams.scale.reshape(ways, rows)
            directions = zip(q, scale, strict=True)
            parts = [packed_rows(kind, q, s, of_state=index == 2) for q, s in directions]
            packed, scales, context.checksums[key] = stacked(parts)
            return packed, scales

        root = context.constants.root(value)
        key = ("gates", root.key, root.transposed, kind, index, self.coupled, self.node.graph)
        name = value.name or "weight"
        w, scale, stats = context.weights.packed(
            key, name, make, finish, self.scheme.weight, self.node.graph
        )
        return PackedRows(w, scale, context.checksums[key]), stats

    def _turned(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Rows of one direction with their gates in PyTorch's order: i f n o, r z n.

        With input_forget, f is 1 - i: the sigmoid of the opposite sum.
        """
        turned = permute_gates(rows, self.order)
        if self.coupled:
            hidden = self.layer.hidden
            turned[hidden : 2 * hidden] = -turned[:hidden]
        return turned

    def _biases(self) -> npt.NDArray[np.float32]:
        """B [D, 2 * gates * H] of the node as that of the operator."""
        kind, value = self.layer.kind, input_at(self.node, 3)
        rows = kind.gates * self.layer.hidden
        stored = np.zeros((ways_of(self.node), 2 * rows), np.float32)
        if value is not None:
            stored = self.context.weights.float32(value)
        turned = [[self._turned(b) for b in np.split(direction, 2)] for direction in stored]
        return stacked_biases(kind, [product_biases(kind, *pair) for pair in turned])
