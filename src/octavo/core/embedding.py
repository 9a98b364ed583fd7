"""Quantized embedding tables: rows are integers in memory and float32 on their way out.

A row is `(q - zero_point) * scale`, with a scale (and a zero point, where it is not 0) of its own.
The bits are the same on every instruction set and for every number of threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.buffers import (
    FloatType,
    Rows,
    array_of,
    array_or_tensor,
    is_tensor,
    output_rows,
)
from octavo.core.kernels.machine import checked_threads
from octavo.core.kernels.packing import Float32, PackedWeight, aligned
from octavo.core.kernels.weight import quantize_weight
from octavo.core.qparams import Grid, QType
from octavo.errors import did_you_mean

MODES = ("sum", "mean", "max")
"""What a bag makes of its rows; their places are the C++ core's numbers."""


class Embedding:
    """A table `q` int8 or uint8 [rows, dim] with `scale` float32 and `zero_point` int32 [rows].

    `zero_point` None stands for zeros. The arrays are referred to, not copied, if they are
    contiguous: a mapped file is used where it lies. Raises TypeError or ValueError, which name the
    argument. Nothing changes a table afterwards, and any number of threads may use it at once.
    """

    __slots__ = ("_native", "q", "run", "run_bag", "scale", "zero_point")

    run: Callable[..., None]
    """The lookup over addresses, for front ends: `run(indices, wide, count, out, out_stride,
    threads)`, where `wide` tells int64 from int32 and strides are in elements. Indices are checked
    as in a call."""

    run_bag: Callable[..., None]
    """The bags over addresses: `run_bag(indices, wide, count, offsets, wide_offsets, bags, last,
    length, weights, padding, mode, out, out_stride, threads)`; `offsets` 0: bags of `length`
    indices; `last`: offsets hold the last bag's end too; `weights` 0: none; `padding` -1: none;
    `mode` the place in `MODES`."""

    def __init__(self, q: Any, scale: Any, zero_point: Any = None) -> None:
        q = array_or_tensor(q, "q")
        q = q.detach().numpy() if is_tensor(q) else q
        if q.dtype not in (np.int8, np.uint8):
            raise TypeError(f"q: needs int8 or uint8, not {q.dtype}")
        if q.ndim != 2:
            raise ValueError(f"q: needs shape [rows, dim], not {q.shape}")
        rows = q.shape[:1]
        self.q = np.ascontiguousarray(q)
        self.scale = array_of(scale, "scale", np.float32, rows)
        self.zero_point = (
            None if zero_point is None else array_of(zero_point, "zero_point", np.int32, rows)
        )
        kind = _native.EmbeddingInt8 if q.dtype == np.int8 else _native.EmbeddingUint8
        self._native = kind(self.q, self.scale, self.zero_point)
        self.run = self._native.lookup
        self.run_bag = self._native.bag

    @classmethod
    def from_float(cls, table: Any, grid: Grid | None = None) -> Embedding:
        """Quantizes a float table [rows, dim], each row with a scale of its own.

        `grid` None is symmetric int8; any of `Grid.of` will do. Raises TypeError for dtypes other
        than float32, float16 and bfloat16, ValueError for shapes, NaN and infinity.
        """
        values = array_of(table, "table", np.float32)
        if values.ndim != 2:
            raise ValueError(f"table: needs shape [rows, dim], not {values.shape}")
        try:
            found = quantize_weight(values, grid or Grid.of(QType.INT8, symmetric=True), 0)
        except ValueError as error:
            raise ValueError(f"table: {error}") from None
        # A row that begins with a cache line has one line less to fetch.
        q = aligned(found.q.nbytes).view(found.q.dtype).reshape(found.q.shape)
        q[...] = found.q
        zero = found.qparams.zero_point
        return cls(q, found.qparams.scale, zero if zero.any() else None)

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return int(self.q.shape[0])

    @property
    def dim(self) -> int:
        """Values of a row."""
        return int(self.q.shape[1])

    def __repr__(self) -> str:
        kind = f"{self.q.dtype}{'' if self.zero_point is None else ' affine'}"
        return f"Embedding({self.rows} x {self.dim}, {kind})"

    def __call__(self, indices: Any, out: Any = None, threads: int = 0) -> Any:
        """Look up `indices` int32 or int64 [...]: rows float32 [..., dim], a tensor for a tensor.

        `out` is written and returned where it is given. Raises IndexError, which names position,
        index and the number of rows, for an index outside `0..rows-1`, TypeError for other dtypes
        and ValueError for other shapes, all before anything is written.
        """
        checked_threads(threads)
        places = _integers(indices, "indices")
        result, to = self._output(out, places.shape, indices)
        self.run(_address(places), _wide(places), places.size, to.address, to.stride, threads)
        return result

    def bag(
        self,
        indices: Any,
        offsets: Any = None,
        *,
        mode: str = "mean",
        per_sample_weights: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        out: Any = None,
        threads: int = 0,
    ) -> Any:
        """Return the "sum", "mean" or "max" of the rows of each bag, float32 [bags, dim].

        Bags are the rows of `indices` [bags, length], or parts of `indices` [count] that begin at
        `offsets` [bags] (ascending from 0; with `include_last_offset` one more, the end of the
        last). `per_sample_weights` float32, of the indices' shape, weigh the rows of a sum. Indices
        equal to `padding_idx` (negative: from the table's end) count for nothing. A bag of nothing
        gives 0. The meaning is that of `torch.nn.EmbeddingBag`. Rows are added in their order, with
        fused multiply-adds. Raises IndexError as a call does, TypeError and ValueError, all before
        anything is written.
        """
        checked_threads(threads)
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}.{did_you_mean(mode, MODES)}")
        places = _integers(indices, "indices")
        starts, bags = _bags(places, offsets, include_last_offset)
        weights = _weights(per_sample_weights, places, mode)
        padding = -1 if padding_idx is None else self._row(padding_idx)
        result, to = self._output(out, (bags,), indices)
        self.run_bag(
            _address(places),
            _wide(places),
            places.size,
            _address(starts),
            starts is not None and _wide(starts),
            bags,
            include_last_offset,
            places.shape[-1] if starts is None else 0,
            _address(weights),
            padding,
            MODES.index(mode),
            to.address,
            to.stride,
            threads,
        )
        return result

    def _row(self, padding_idx: int) -> int:
        if not -self.rows <= padding_idx < self.rows:
            raise ValueError(
                f"padding_idx: {padding_idx} is not in {-self.rows}..{self.rows - 1}, the rows"
            )
        return padding_idx % self.rows

    def _output(self, out: Any, lead: tuple[int, ...], like: Any) -> tuple[Any, Rows]:
        shape = (*lead, self.dim)
        if out is None:
            array = np.empty(shape, np.float32)
            # PyTorch is loaded already where there is a tensor; the two share the memory.
            out = sys.modules["torch"].from_numpy(array) if is_tensor(like) else array
        to = output_rows(out, "out", shape, None)
        if to.dtype is not FloatType.FLOAT32:
            raise TypeError(f"out: needs float32, not {to.dtype.name.lower()}")
        return out, to


class PackedEmbedding:
    """A table that is the packed weight of a linear layer: rows are its outputs' inputs.

    The weight is referred to, not copied. Bits are those of the weight, dequantized.
    """

    __slots__ = ("_native", "weight")

    def __init__(self, weight: PackedWeight) -> None:
        self.weight = weight
        self._native = _native.PackedEmbedding(
            weight.packed, weight.n, weight.k, weight.scale, weight.zero_point, weight.format.value
        )

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self.weight.k

    def run(
        self, indices: int, wide: bool, count: int, out: int, out_stride: int, threads: int
    ) -> None:
        """Look rows up over addresses, as `Embedding.run`; `out_stride` is `dim`.

        Raises IndexError as `Embedding.run` does.
        """
        assert out_stride == self.dim
        self._native.lookup(indices, wide, count, out, threads)


def _integers(x: Any, name: str) -> npt.NDArray[Any]:
    x = array_or_tensor(x, name)
    dtype = str(x.dtype).removeprefix("torch.")
    if dtype not in ("int32", "int64"):
        raise TypeError(f"{name}: needs an array of int32 or int64, not {dtype}; convert it first")
    return array_of(x, name, dtype)


def _address(array: npt.NDArray[Any] | None) -> int:
    """Return the address of the array's data, or 0 for None."""
    return 0 if array is None else array.ctypes.data


def _wide(array: npt.NDArray[Any]) -> bool:
    return array.dtype.itemsize == 8


def _bags(
    indices: npt.NDArray[Any], offsets: Any, include_last_offset: bool
) -> tuple[npt.NDArray[Any] | None, int]:
    """Offsets (None: the rows of `indices` are the bags) and how many bags there are."""
    if offsets is None:
        if indices.ndim != 2:
            raise ValueError(
                f"indices: needs shape [bags, length], not {indices.shape}, or offsets"
            )
        if include_last_offset:
            raise ValueError("include_last_offset: needs offsets")
        return None, int(indices.shape[0])
    starts = _integers(offsets, "offsets")
    if indices.ndim != 1 or starts.ndim != 1:
        raise ValueError(
            "indices, offsets: need one axis each where there are offsets, "
            f"not shapes {indices.shape} and {starts.shape}"
        )
    if include_last_offset and not starts.size:
        raise ValueError("offsets: are empty; with include_last_offset they hold one at least")
    return starts, int(starts.size) - include_last_offset


def _weights(x: Any, indices: npt.NDArray[Any], mode: str) -> Float32 | None:
    if x is None:
        return None
    if mode != "sum":
        raise ValueError(f"per_sample_weights: mode {mode!r} has none; only 'sum' does")
    return array_of(x, "per_sample_weights", np.float32, indices.shape)
