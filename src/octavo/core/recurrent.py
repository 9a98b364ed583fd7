"""Dynamically quantized recurrent layers: LSTM, GRU and plain RNN, and their single steps.

The definitions are PyTorch's, gates in its order; x and h are quantized apart, each batch item at
each step with its own scale:

    LSTM  i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
          c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c')  [then W_hr h']
    GRU   r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh)
          n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h' = (1 - z) n + z h
    RNN   h' = tanh or relu(W_ih x + b_ih + W_hh h + b_hh)

The bits are the same on every instruction set, for every number of threads, and whatever the other
batch items are. NaN or infinity in an item stays in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octavo import _native
from octavo.core.kernels.buffers import array_of, array_or_tensor
from octavo.core.kernels.machine import checked_threads
from octavo.core.recurrent_inputs import lengths_of, output_of, sequence_of
from octavo.core.recurrent_weights import (
    Direction,
    FloatLayers,
    Kind,
    Layout,
    at_least,
    checked_clip,
    packed_layers,
)


class Recurrent:
    """Layers of one kind over packed weights. Made by `from_float` of `Lstm`, `Gru` and `Rnn`.

    `layers[i]` holds the directions of layer i. Nothing changes it afterwards, and any number of
    threads may call it at once.
    """

    run: Callable[..., None]
    """The layers over addresses, for front ends: no checks, nothing allocated.

    `run(x, steps, batch, x_step, x_item, y, y_step, y_item, y_direction, h0, c0, h, c, lengths,
    threads)`: `x` and `y` are addresses of float32 whose last axis is contiguous; strides are in
    elements, from step to step, batch item to item and (y) direction to direction. `h0`, `c0`, `h`
    and `c` are contiguous float32 [layers * directions, batch, output_size] (c: hidden_size),
    `lengths` int64 [batch], each 0..steps. Address 0 is what is not there: zeros for h0 and c0, the
    whole length for lengths, not wanted for y, h and c. `threads` 0 means `num_threads()`.
    """

    def __init__(
        self,
        kind: Kind,
        layers: Sequence[Sequence[Direction]],
        hidden_size: int,
        output_size: int,
        clip: float = 0.0,
    ) -> None:
        self.layers = tuple(tuple(layer) for layer in layers)
        self.kind, self.clip = kind, clip
        self.input_size = self.layers[0][0].input.weight.k
        self.hidden_size, self.output_size = hidden_size, output_size
        self.directions = len(self.layers[0])
        self._states = len(self.layers) * self.directions
        native = [[way.native() for way in layer] for layer in self.layers]
        self._native = _native.Recurrent(int(kind), hidden_size, output_size, clip, native)
        self.run = self._native.run

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.input_size} -> {self.output_size}, "
            f"layers={len(self.layers)}, directions={self.directions})"
        )

    def _apply(
        self, x: Any, h0: Any, c0: Any, lengths: Any, out: Any, threads: int
    ) -> tuple[Any, Any, Any]:
        checked_threads(threads)
        x = sequence_of(x, self.input_size)
        steps, batch, _ = x.shape
        # NumPy's and PyTorch's ways of asking for new memory are alike; a call is but microseconds.
        new, like = (np.empty, x.dtype) if isinstance(x, np.ndarray) else (x.new_empty, None)
        shape = (self._states, batch, self.output_size)
        h, c = new(shape, dtype=like), None
        h0 = None if h0 is None else array_of(h0, "h0", np.float32, shape)
        if self.kind is Kind.LSTM:
            shape = (self._states, batch, self.hidden_size)
            c = new(shape, dtype=like)
            c0 = None if c0 is None else array_of(c0, "c0", np.float32, shape)
        shape = (steps, batch, self.directions * self.output_size)
        if out is None:
            y = new(shape, dtype=like)
        else:
            y = output_of(out, shape, {"x": x, "h0": h0, "c0": c0})
        lengths = None if lengths is None else lengths_of(lengths, batch, steps)
        self._native.apply(x, y, h0, c0, h, c, lengths, threads)
        return (y if out is None else out), h, c


class Lstm(Recurrent):
    """LSTM layers, with or without a projection."""

    @classmethod
    def from_float(
        cls,
        weights: Sequence[Any],
        *,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        proj_size: int = 0,
        bias: bool = True,
        float_layers: FloatLayers = (),
        reverse: bool = False,
        clip: float = 0.0,
    ) -> Lstm:
        """Quantizes and packs float weights, given as PyTorch's flat list.

        For each layer, and in it for each direction: `w_ih` [4 * hidden, inputs], `w_hh`
        [4 * hidden, proj_size or hidden], then with `bias` `b_ih` and `b_hh` [4 * hidden], then
        with a `proj_size` `w_hr` [proj_size, hidden]. Layers in `float_layers` (a number, or a pair
        of layer and direction) keep float32 weights. `reverse` runs a single direction backwards.
        `clip` bounds the gates before their sigmoid or tanh (ONNX); 0: nothing does. Raises
        TypeError or ValueError, which name the weight or the argument.
        """
        at_least("proj_size", proj_size, 0)
        if proj_size >= hidden_size > 0:
            raise ValueError(f"proj_size: {proj_size} must be less than hidden_size {hidden_size}")
        layout = Layout(Kind.LSTM, hidden_size, num_layers, bidirectional, proj_size, bias, reverse)
        layers = packed_layers(layout, weights, float_layers)
        return cls(Kind.LSTM, layers, hidden_size, proj_size or hidden_size, checked_clip(clip))

    def __call__(
        self,
        x: Any,
        h0: Any = None,
        c0: Any = None,
        lengths: Any = None,
        out: Any = None,
        threads: int = 0,
    ) -> tuple[Any, Any, Any]:
        """Return (y, h, c) for `x` float32 [T, B, input_size], in `x`'s kind of array.

        y is [T, B, directions * output_size], h [layers * directions, B, output_size], c likewise
        with hidden_size; `h0` and `c0` have their shapes, zeros where None. `lengths` integers [B]:
        y is 0 behind an item's end, h and c are those at its last step, and a reverse direction
        starts there. Strided x and `out` (written and returned as y) are used as they are if their
        last axis is contiguous: pass transposed views of [B, T, ...]; `out` has nothing in common
        with the other arguments. Raises TypeError or ValueError, which name the argument.
        """
        return self._apply(x, h0, c0, lengths, out, threads)


class Gru(Recurrent):
    """GRU layers."""

    @classmethod
    def from_float(
        cls,
        weights: Sequence[Any],
        *,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        bias: bool = True,
        float_layers: FloatLayers = (),
        reverse: bool = False,
        clip: float = 0.0,
        linear_before_reset: bool = True,
    ) -> Gru:
        """Build the layer as `Lstm.from_float` does, with gates r, z, n: weights [3 * hidden, ...].

        `linear_before_reset=False` is ONNX's default:
        `n = tanh(W_in x + b_in + W_hn (r h) + b_hn)`.
        """
        kind = Kind.GRU if linear_before_reset else Kind.GRU_RESET_FIRST
        layout = Layout(kind, hidden_size, num_layers, bidirectional, 0, bias, reverse)
        layers = packed_layers(layout, weights, float_layers)
        return cls(kind, layers, hidden_size, hidden_size, checked_clip(clip))

    def __call__(
        self, x: Any, h0: Any = None, lengths: Any = None, out: Any = None, threads: int = 0
    ) -> tuple[Any, Any]:
        """Return (y, h), as `Lstm.__call__` does without c."""
        return self._apply(x, h0, None, lengths, out, threads)[:2]


class Rnn(Recurrent):
    """Plain recurrent layers with tanh or relu."""

    @classmethod
    def from_float(
        cls,
        weights: Sequence[Any],
        *,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        bias: bool = True,
        nonlinearity: str = "tanh",
        float_layers: FloatLayers = (),
        reverse: bool = False,
        clip: float = 0.0,
    ) -> Rnn:
        """Build the layer as `Lstm.from_float` does, with one gate: weights [hidden, ...]."""
        kinds = {"tanh": Kind.RNN_TANH, "relu": Kind.RNN_RELU}
        if nonlinearity not in kinds:
            raise ValueError(f"nonlinearity: {nonlinearity!r} must be 'tanh' or 'relu'")
        kind = kinds[nonlinearity]
        layout = Layout(kind, hidden_size, num_layers, bidirectional, 0, bias, reverse)
        layers = packed_layers(layout, weights, float_layers)
        return cls(kind, layers, hidden_size, hidden_size, checked_clip(clip))

    def __call__(
        self, x: Any, h0: Any = None, lengths: Any = None, out: Any = None, threads: int = 0
    ) -> tuple[Any, Any]:
        """Return (y, h), as `Lstm.__call__` does without c."""
        return self._apply(x, h0, None, lengths, out, threads)[:2]


class LstmCell:
    """One step of one LSTM layer."""

    def __init__(self, layer: Lstm) -> None:
        self.layer = layer

    @classmethod
    def from_float(
        cls, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, *, keep_float: bool = False
    ) -> LstmCell:
        """Build a cell from float weights.

        `w_ih` is [4 * hidden, inputs], `w_hh` [4 * hidden, hidden], biases are [4 * hidden] or
        None.
        """
        return cls(Lstm.from_float(**_cell(4, w_ih, w_hh, b_ih, b_hh, keep_float)))

    def __call__(self, x: Any, h: Any = None, c: Any = None, threads: int = 0) -> tuple[Any, Any]:
        """Return (h', c') [B, hidden] for `x` [B, inputs].

        `h` and `c` are [B, hidden], zeros where None.
        """
        _, after, memory = self.layer(_step(x), _lifted(h, "h"), _lifted(c, "c"), threads=threads)
        return after[0], memory[0]


class GruCell:
    """One step of one GRU layer."""

    def __init__(self, layer: Gru) -> None:
        self.layer = layer

    @classmethod
    def from_float(
        cls, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, *, keep_float: bool = False
    ) -> GruCell:
        """Build a cell from float weights.

        `w_ih` is [3 * hidden, inputs], `w_hh` [3 * hidden, hidden], biases are [3 * hidden] or
        None.
        """
        return cls(Gru.from_float(**_cell(3, w_ih, w_hh, b_ih, b_hh, keep_float)))

    def __call__(self, x: Any, h: Any = None, threads: int = 0) -> Any:
        """h' [B, hidden] for `x` [B, inputs]; `h` [B, hidden], zeros where None."""
        return self.layer(_step(x), _lifted(h, "h"), threads=threads)[1][0]


class RnnCell:
    """One step of one plain recurrent layer."""

    def __init__(self, layer: Rnn) -> None:
        self.layer = layer

    @classmethod
    def from_float(
        cls,
        w_ih: Any,
        w_hh: Any,
        b_ih: Any = None,
        b_hh: Any = None,
        *,
        nonlinearity: str = "tanh",
        keep_float: bool = False,
    ) -> RnnCell:
        """Build a cell from float weights.

        `w_ih` is [hidden, inputs], `w_hh` [hidden, hidden], biases are [hidden] or None.
        """
        arguments = _cell(1, w_ih, w_hh, b_ih, b_hh, keep_float)
        return cls(Rnn.from_float(**arguments, nonlinearity=nonlinearity))

    def __call__(self, x: Any, h: Any = None, threads: int = 0) -> Any:
        """h' [B, hidden] for `x` [B, inputs]; `h` [B, hidden], zeros where None."""
        return self.layer(_step(x), _lifted(h, "h"), threads=threads)[1][0]


def _cell(
    gates: int, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, keep_float: bool
) -> dict[str, Any]:
    if (b_ih is None) != (b_hh is None):
        raise ValueError("b_ih and b_hh: give both or neither")
    w_hh = array_or_tensor(w_hh, "w_hh")
    weights = [w_ih, w_hh] + ([] if b_ih is None else [b_ih, b_hh])
    return {
        "weights": weights,
        "hidden_size": w_hh.shape[0] // gates,
        "bias": b_ih is not None,
        "float_layers": (0,) if keep_float else (),
    }


def _step(x: Any) -> Any:
    x = array_or_tensor(x, "x")
    if len(x.shape) != 2:
        raise ValueError(f"x: needs shape [B, inputs], not {tuple(x.shape)}")
    return x[None]


def _lifted(state: Any, name: str) -> Any:
    return None if state is None else array_or_tensor(state, name)[None]
