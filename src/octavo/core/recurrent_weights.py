"""Weights of recurrent layers as the C++ core reads them: int8 or float32, gates interleaved.

Rows of PyTorch's weights lie gate by gate, [gates * hidden, inputs]. Packed, they lie in blocks of
16 hidden units, [ceil(hidden/16)][gates][16], so that one pass over them makes all gates of 16
units; rows of units that there are not are zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.buffers import array_of
from octavo.core.kernels.packing import ALIGNMENT, Float32, Int8, PackedWeight, aligned, pack
from octavo.core.kernels.weight import quantize_packed
from octavo.core.qparams import Grid, QType

BLOCK = 16
MOST_INPUTS = 32640
"""Inputs of an int8 weight whose sums fit int32 for certain."""

ONNX_LSTM = (0, 2, 3, 1)
"""PyTorch's gates i, f, g, o by their places in ONNX's i, o, f, c: for `permute_gates`."""
ONNX_GRU = (1, 0, 2)
"""PyTorch's gates r, z, n by their places in ONNX's z, r, h."""


@dataclass(frozen=True)
class FloatWeight:
    """A weight [n, k] that stays float: `blocks` float32 [ceil(n/16), k, 16], zero padded."""

    blocks: Float32
    n: int

    @property
    def k(self) -> int:
        """Inputs."""
        return int(self.blocks.shape[1])


@dataclass(frozen=True)
class Matrix:
    """A weight and its `bias`, float32 [n] or None."""

    weight: PackedWeight | FloatWeight
    bias: Float32 | None = None

    def native(self) -> Any:
        """Return the C++ object, which refers to the same memory."""
        if isinstance(self.weight, FloatWeight):
            return _native.Matrix.float32(self.weight.blocks, self.weight.n, self.bias)
        w = self.weight
        return _native.Matrix.int8(w.packed, w.n, w.k, w.scale, self.bias, w.format.value)


@dataclass(frozen=True)
class Direction:
    """The weights of one direction of one layer.

    `input` and `state` have interleaved gates: i, f, g, o (LSTM), r, z, n (GRU), or one (RNN).
    `second` is an LSTM's projection [proj_size, hidden], or n's weight of a GRU that resets before
    the product (then `state` holds r and z alone).
    """

    input: Matrix
    state: Matrix
    second: Matrix | None = None
    reverse: bool = False

    def native(self) -> tuple[bool, Any, Any, Any]:
        """Return what the C++ core takes: whether it runs in reverse, and its matrices."""
        second = None if self.second is None else self.second.native()
        return self.reverse, self.input.native(), self.state.native(), second


def interleave(w: npt.NDArray[Any], gates: int) -> npt.NDArray[Any]:
    """Put rows of `w` [gates * hidden, ...] in blocks [ceil(hidden/16)][gates][16], zero padded."""
    hidden = w.shape[0] // gates
    blocks = -(-hidden // BLOCK)
    padded = np.zeros((gates, blocks * BLOCK, *w.shape[1:]), w.dtype)
    padded[:, :hidden] = w.reshape(gates, hidden, *w.shape[1:])
    found = padded.reshape(gates, blocks, BLOCK, *w.shape[1:]).swapaxes(0, 1)
    turned: npt.NDArray[Any] = found.reshape(gates * blocks * BLOCK, *w.shape[1:])
    return turned


def separate(w: npt.NDArray[Any], gates: int, hidden: int) -> npt.NDArray[Any]:
    """Undo `interleave`: from `w` [blocks * gates * 16, ...] back to [gates * hidden, ...]."""
    blocks = w.reshape(-1, gates, BLOCK, *w.shape[1:]).swapaxes(0, 1)
    whole = blocks.reshape(gates, -1, *w.shape[1:])[:, :hidden]
    turned: npt.NDArray[Any] = whole.reshape(gates * hidden, *w.shape[1:])
    return turned


def permute_gates(w: npt.NDArray[Any], order: Sequence[int]) -> npt.NDArray[Any]:
    """Return `w` [gates * hidden, ...] with gate `order[i]` in place i: `ONNX_LSTM`, `ONNX_GRU`."""
    if sorted(order) != list(range(len(order))) or w.shape[0] % len(order):
        raise ValueError(f"order: {tuple(order)} does not permute the gates of shape {w.shape}")
    hidden = w.shape[0] // len(order)
    gates = w.reshape(len(order), hidden, *w.shape[1:])
    return np.concatenate([gates[i] for i in order])


def packed_matrix(w: Float32, bias: Float32 | None, gates: int, keep_float: bool) -> Matrix:
    """Packs `w` [gates * hidden, k] (`gates` 0: rows stay in their order) for the kernels.

    Quantized symmetrically, one scale a row, or kept float32. Raises ValueError on NaN or infinity,
    and on more than 32,640 inputs of an int8 weight.
    """
    if gates:
        w = interleave(w, gates)
        bias = None if bias is None else interleave(bias, gates)
    n, k = w.shape
    if keep_float:
        return Matrix(FloatWeight(float_blocks(w), n), bias)
    if k > MOST_INPUTS:
        raise ValueError(f"{k} inputs; int8 has up to {MOST_INPUTS}: keep this layer float")
    found = quantize_packed(w, Grid.of(QType.INT8, symmetric=True), 0)
    return Matrix(PackedWeight(found.q, n, k, found.qparams.scale), bias)


def packed_integers(q: Int8, scale: Float32, gates: int) -> PackedWeight:
    """Integers [gates * hidden, k] with a `scale` each row, packed as `packed_matrix` does."""
    rows = interleave(scale, gates)
    rows[rows == 0] = 1  # of units that there are not
    return PackedWeight(pack(interleave(q, gates)), len(rows), q.shape[1], rows)


def float_blocks(w: Float32) -> Float32:
    """Return `w` [n, k] as `FloatWeight.blocks`, in new memory aligned for whole cache lines."""
    n, k = w.shape
    shape = (-(-n // BLOCK), BLOCK, k)
    padded = w.reshape(shape) if n % BLOCK == 0 else _padded(w, shape)
    size = 4 * shape[0] * BLOCK * k
    memory: Float32 = aligned(size, ALIGNMENT).view(np.float32).reshape(shape[0], k, BLOCK)
    memory[...] = padded.swapaxes(1, 2)
    return memory


def _padded(w: Float32, shape: tuple[int, ...]) -> Float32:
    found = np.zeros((shape[0] * BLOCK, w.shape[1]), np.float32)
    found[: len(w)] = w
    return found.reshape(shape)


FloatLayers = Iterable[int | tuple[int, int]]


class Kind(IntEnum):
    """What a step does; the values are the C++ core's."""

    LSTM = 0
    GRU = 1
    GRU_RESET_FIRST = 2
    RNN_TANH = 3
    RNN_RELU = 4

    @property
    def gates(self) -> int:
        """Blocks of rows in a weight."""
        return (4, 3, 3, 1, 1)[self]


class Layout(NamedTuple):
    """What a flat list of weights means: PyTorch's `all_weights`, one list."""

    kind: Kind
    hidden: int
    layers: int
    bidirectional: bool
    proj: int
    bias: bool
    reverse: bool

    @property
    def directions(self) -> int:
        """Return the number of directions of each layer."""
        return 2 if self.bidirectional else 1

    def names(self) -> list[str]:
        """Return the names of the weights of one direction, in PyTorch's order."""
        names = ["w_ih", "w_hh"] + (["b_ih", "b_hh"] if self.bias else [])
        return names + (["w_hr"] if self.proj else [])


def packed_layers(
    layout: Layout, weights: Sequence[Any], float_layers: FloatLayers
) -> list[list[Direction]]:
    """Pack the directions of each layer. Raises TypeError or ValueError, which name the weight."""
    at_least("hidden_size", layout.hidden, 1)
    at_least("num_layers", layout.layers, 1)
    if layout.bidirectional and layout.reverse:
        raise ValueError("reverse: is for a single direction, and bidirectional is set")
    names, ways = layout.names(), layout.directions
    if len(weights) != layout.layers * ways * len(names):
        raise ValueError(
            f"weights: {len(weights)} arrays; {layout.layers} layers of {ways} directions need "
            f"{layout.layers * ways * len(names)}: {', '.join(names)} for each"
        )
    kept = _float_set(float_layers, layout.layers, ways)
    layers: list[list[Direction]] = []
    inputs: int | None = None
    for i in range(layout.layers):
        layers.append([])
        for way in range(ways):
            first = (i * ways + way) * len(names)
            found = {
                name: array_of(weights[first + at], f"weights[{first + at}] ({name})", np.float32)
                for at, name in enumerate(names)
            }
            if inputs is None and found["w_ih"].ndim == 2:
                inputs = found["w_ih"].shape[1]
            _check_shapes(layout, found, first, inputs)
            where = f"layer {i}, direction {way}"
            try:
                made = _direction(layout, found, layout.reverse or way == 1, (i, way) in kept)
            except ValueError as error:
                raise ValueError(f"weights: {where}: {error}") from None
            layers[-1].append(made)
        inputs = ways * (layout.proj or layout.hidden)
    return layers


def _direction(
    layout: Layout, found: dict[str, Float32], reverse: bool, keep_float: bool
) -> Direction:
    kind, gates, rz = layout.kind, layout.kind.gates, 2 * layout.hidden
    w_hh, second = found["w_hh"], None
    of_input = of_state = None
    if layout.bias:
        of_input, of_state = product_biases(kind, found["b_ih"], found["b_hh"])
    if layout.proj:
        second = packed_matrix(found["w_hr"], None, 0, keep_float)
    if kind is Kind.GRU_RESET_FIRST:
        second = packed_matrix(w_hh[rz:], None, 1, keep_float)
        state: Matrix = packed_matrix(w_hh[:rz], None, 2, keep_float)
    else:
        state = packed_matrix(w_hh, of_state, gates, keep_float)
    made = packed_matrix(found["w_ih"], of_input, gates, keep_float)
    return Direction(made, state, second, reverse)


def product_biases(kind: Kind, b_ih: Float32, b_hh: Float32) -> tuple[Float32, Float32 | None]:
    """Return the biases [gates * hidden] of x's and of h's product as the C++ core adds them."""
    both: Float32 = b_ih + b_hh
    if kind is not Kind.GRU:
        return both, None
    of_state: Float32 = b_hh.copy()  # n's bias of the state goes through the reset gate
    rz = len(b_hh) // 3 * 2
    both[rz:], of_state[:rz] = b_ih[rz:], 0
    return both, of_state


def _check_shapes(
    layout: Layout, found: dict[str, Float32], first: int, inputs: int | None
) -> None:
    rows = layout.kind.gates * layout.hidden
    wanted: dict[str, tuple[int | None, ...]] = {
        "w_ih": (rows, inputs),
        "w_hh": (rows, layout.proj or layout.hidden),
        "b_ih": (rows,),
        "b_hh": (rows,),
        "w_hr": (layout.proj, layout.hidden),
    }
    for at, (name, array) in enumerate(found.items()):
        if name == "w_ih" and array.shape == (rows, 0):
            raise ValueError(
                f"weights[{first}] (w_ih): shape {array.shape} has no inputs; needs 1 or more"
            )
        if array.shape != wanted[name]:
            needs = str(wanted[name]).replace("None", "inputs")
            raise ValueError(f"weights[{first + at}] ({name}): needs {needs}, not {array.shape}")


def _float_set(float_layers: FloatLayers, layers: int, ways: int) -> set[tuple[int, int]]:
    kept: set[tuple[int, int]] = set()
    for entry in float_layers:
        i, among = entry if isinstance(entry, tuple) else (entry, None)
        chosen = range(ways) if among is None else (among,)
        if not 0 <= i < layers or any(not 0 <= way < ways for way in chosen):
            raise ValueError(
                f"float_layers: {entry} is none of the layers 0..{layers - 1}"
                f" (and directions 0..{ways - 1})"
            )
        kept.update((i, way) for way in chosen)
    return kept


def checked_clip(clip: float) -> float:
    """Return `clip`, where it is 0 or positive; raise ValueError for others."""
    if not isfinite(clip) or clip < 0:
        raise ValueError(f"clip: {clip} must be 0 (none) or a positive number")
    return float(clip)


def at_least(name: str, value: int, least: int) -> None:
    """Raise ValueError where `value` is less than `least`."""
    if value < least:
        raise ValueError(f"{name}: {value} must be {least} or more")
