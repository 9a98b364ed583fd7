"""Recurrent layers as ONNX models, and what the core gives in their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from octavo.core.recurrent import Gru, Lstm, Recurrent, Rnn
from octavo.core.recurrent_weights import ONNX_GRU, ONNX_LSTM, permute_gates
from octavo.onnx import session
from tests.graphs import FLOAT, INT32, Array, Converted, build, node
from tests.native_target.forms import convert
from tests.native_target.nodes import options_with

KINDS = ("lstm", "gru", "gru_reset", "tanh", "relu")
OPS = dict(zip(KINDS, ("LSTM", "GRU", "GRU", "RNN", "RNN"), strict=True))
ORDERS = {"LSTM": ONNX_LSTM, "GRU": ONNX_GRU, "RNN": (0,)}
OUTPUTS = ("Y", "Y_h", "Y_c")


@dataclass(frozen=True)
class Layer:
    """One node, its weights, and what it is called with. Weights have ONNX's order of gates."""

    kind: str
    inputs: int = 7
    hidden: int = 20
    direction: str = "forward"
    layout: int = 0
    clip: float = 0.0
    bias: bool = True
    steps: int = 5
    batch: int = 3
    lengths: tuple[int, ...] | None = None
    states: tuple[str, ...] = ()
    outs: tuple[str, ...] = OUTPUTS
    seed: int = 0
    weights: dict[str, Array] = field(default_factory=dict, compare=False, repr=False)
    feeds: dict[str, Array] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        r = np.random.default_rng([self.seed, self.hidden, self.inputs])
        rows, ways = len(ORDERS[self.op]) * self.hidden, self.ways
        bound = 1.5 / np.sqrt(self.hidden)
        shapes = {"W": (rows, self.inputs), "R": (rows, self.hidden), "B": (2 * rows,)}
        for name, shape in shapes.items():
            if name != "B" or self.bias:
                self.weights[name] = r.uniform(-bound, bound, (ways, *shape)).astype(np.float32)
        x = r.standard_normal((self.steps, self.batch, self.inputs))
        self.feeds["X"] = self.turned(x.astype(np.float32))
        for name in self.states:
            state = 0.5 * r.standard_normal((ways, self.batch, self.hidden))
            self.feeds[name] = self.turned(state.astype(np.float32))
        if self.lengths is not None:
            self.feeds["sequence_lens"] = np.array(self.lengths, np.int32)

    @property
    def op(self) -> str:
        return OPS[self.kind]

    @property
    def ways(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs that the node has."""
        return tuple(o for o in self.outs if o and (o != "Y_c" or self.op == "LSTM"))

    def turned(self, array: Array) -> Array:
        """Time (or directions) first as the node has it, and back; Y's axis of directions stays."""
        if not self.layout:
            return array
        axes = (1, 0, 2) if array.ndim == 3 else (2, 0, 1, 3)
        return np.ascontiguousarray(array.transpose(axes))

    def model(self) -> onnx.ModelProto:
        """The float model, sizes of the batch and of time open."""
        given: dict[str, Any] = {"hidden_size": self.hidden, "direction": self.direction}
        given |= {"layout": 1} if self.layout else {}
        given |= {"clip": self.clip} if self.clip else {}
        given |= {"linear_before_reset": 1} if self.kind == "gru" else {}
        given |= {"activations": ["Relu"] * self.ways} if self.kind == "relu" else {}
        inputs = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c"]
        inputs = _trimmed(n if n in self.feeds or n in self.weights else "" for n in inputs)
        outs = _trimmed(o if o in self.names else "" for o in self.outs)
        state = ("B", self.ways, self.hidden) if self.layout else (self.ways, "B", self.hidden)
        types: dict[str, Any] = dict.fromkeys(self.states, (FLOAT, state))
        types["X"] = (FLOAT, (*("BT" if self.layout else "TB"), self.inputs))
        if self.lengths is not None:
            types["sequence_lens"] = (INT32, ("B",))
        made = node(self.op, inputs, outs, name="layer", **given)
        return build([made], types, self.names, self.weights)

    def core(self) -> Recurrent:
        """The layer in the kernel core, from the same float weights."""
        order, flat = ORDERS[self.op], []
        for d in range(self.ways):
            flat += [permute_gates(self.weights[n][d], order) for n in "WR"]
            if self.bias:
                flat += [permute_gates(b, order) for b in np.split(self.weights["B"][d], 2)]
        common: dict[str, Any] = {
            "hidden_size": self.hidden,
            "bidirectional": self.ways == 2,
            "reverse": self.direction == "reverse",
            "bias": self.bias,
            "clip": self.clip,
        }
        if self.op == "LSTM":
            return Lstm.from_float(flat, **common)
        if self.op == "RNN":
            return Rnn.from_float(flat, nonlinearity=self.kind, **common)
        return Gru.from_float(flat, linear_before_reset=self.kind == "gru", **common)

    def by_core(self) -> dict[str, Array]:
        """The outputs, to the bit: the core's, and no state of an item without steps."""
        zeros = np.zeros((self.ways, self.batch, self.hidden), np.float32)
        h0, c0 = (
            self.turned(self.feeds[n]) if n in self.feeds else zeros.copy()
            for n in ("initial_h", "initial_c")
        )
        lengths = [self.steps] * self.batch if self.lengths is None else list(self.lengths)
        net, x = self.core(), self.turned(self.feeds["X"])
        if isinstance(net, Lstm):
            y, h, c = net(x, h0, c0, lengths)
        else:
            assert isinstance(net, Gru | Rnn)
            (y, h), c = net(x, h0, lengths), c0
        y = y.reshape(self.steps, self.batch, self.ways, self.hidden).transpose(0, 2, 1, 3)
        h, c = h.copy(), c.copy()
        none = [b for b, length in enumerate(lengths) if length == 0]
        h[:, none], c[:, none] = 0, 0
        if self.layout:
            y = np.ascontiguousarray(y.transpose(2, 0, 1, 3))
        outputs = {"Y": y, "Y_h": self.turned(h), "Y_c": self.turned(c)}
        return {n: outputs[n] for n in self.names}


def _trimmed(names: Iterable[str]) -> list[str]:
    """Without the empty ones at the end."""
    found = list(names)
    while not found[-1]:
        found.pop()
    return found


def opened(path: Path, threads: int = 1) -> ort.InferenceSession:
    return session(path, sess_options=options_with(threads))


def native(layer: Layer, folder: Path, **options: Any) -> Converted:
    """The converted model, in which the layer is Octavo's operator."""
    done = convert(layer.model(), folder, **options)
    (found,) = done.proto.graph.node
    assert (found.domain, found.op_type) == ("ai.octavo", layer.op)
    return done


def outputs(layer: Layer, folder: Path, threads: int = 1) -> dict[str, Array]:
    found = opened(native(layer, folder).path, threads).run(list(layer.names), layer.feeds)
    return dict(zip(layer.names, found, strict=True))
