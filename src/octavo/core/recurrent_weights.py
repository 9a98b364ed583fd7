"""Weights of recurrent layers as the C++ core reads them: int8 or float32, gates interleaved.

Rows of PyTorch's weights lie gate by gate, [gates * hidden, inputs]. Packed, they lie in blocks of
16 hidden units, [ceil(hidden/16)][gates][16], so that one pass over them makes all gates of 16
units; rows of units that there are not are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.packing import ALIGNMENT, Float32, Int8, PackedWeight, aligned, pack
from octavo.core.kernels.weight import quantize_packed
from octavo.core.qtype import Grid, QType

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
        """The C++ object, which refers to the same memory."""
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
        """What the C++ core takes."""
        second = None if self.second is None else self.second.native()
        return self.reverse, self.input.native(), self.state.native(), second


def interleave(w: npt.NDArray[Any], gates: int) -> npt.NDArray[Any]:
    """`w` [gates * hidden, ...], its rows in blocks [ceil(hidden/16)][gates][16], zero padded."""
    hidden = w.shape[0] // gates
    blocks = -(-hidden // BLOCK)
    padded = np.zeros((gates, blocks * BLOCK, *w.shape[1:]), w.dtype)
    padded[:, :hidden] = w.reshape(gates, hidden, *w.shape[1:])
    found = padded.reshape(gates, blocks, BLOCK, *w.shape[1:]).swapaxes(0, 1)
    turned: npt.NDArray[Any] = found.reshape(gates * blocks * BLOCK, *w.shape[1:])
    return turned


def separate(w: npt.NDArray[Any], gates: int, hidden: int) -> npt.NDArray[Any]:
    """The [gates * hidden, ...] that `interleave` made `w` [blocks * gates * 16, ...] of."""
    blocks = w.reshape(-1, gates, BLOCK, *w.shape[1:]).swapaxes(0, 1)
    whole = blocks.reshape(gates, -1, *w.shape[1:])[:, :hidden]
    turned: npt.NDArray[Any] = whole.reshape(gates * hidden, *w.shape[1:])
    return turned


def permute_gates(w: npt.NDArray[Any], order: Sequence[int]) -> npt.NDArray[Any]:
    """`w` [gates * hidden, ...] with gate `order[i]` in place i: `ONNX_LSTM`, `ONNX_GRU`."""
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
    """`w` [n, k] as `FloatWeight.blocks`, in new memory aligned for whole cache lines."""
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
