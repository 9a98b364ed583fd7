"""Dynamically quantized convolutions over float32 [N, C, L] and [N, C, H, W].

Each image, with all its channels, becomes uint8 with one scale and zero point as it comes; filters
are int8 ahead of time, symmetric, with one scale for each output channel; sums are exact:

    y[n, o, p] = scale_x[n] * scale_w[o] * sum + bias[o]
    sum = sum over c, tap of (q[n, c, p at tap] - zero_x[n]) * w[o, c, tap]

Padding is the zero point, so it adds exactly 0. The bits are the same on every instruction set,
for every number of threads, and whatever the other images are. An image that holds NaN or infinity
gives an image of NaN. Affine filters are not offered.

`pool` is max pooling behind the activation, with windows as large as their stride: the largest of
each is written, and a rest that makes no whole one is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np

from octavo import _native
from octavo.core.kernels.activation import Activation
from octavo.core.kernels.buffers import (
    FloatType,
    Rows,
    array_of,
    is_tensor,
    new_like,
    output_rows,
    overlap,
    rows_of,
)
from octavo.core.kernels.machine import checked_threads
from octavo.core.kernels.packing import Bytes, Float32, Int8, WeightFormat, aligned, unpack
from octavo.core.kernels.weight import quantize_weight
from octavo.core.qparams import Grid, QType

_C = TypeVar("_C", bound="_Convolution")
_AXES = {1: "[N, C, L]", 2: "[N, C, H, W]"}
_MOST = 2**31 - 1
MOST_POOL: int = _native.MOST_POOL
_DEPTHWISE_TAPS = 512  # of filters of one channel, packed as they are (native/layers/conv.h)


@dataclass(frozen=True)
class Window:
    """How filters move over an image: one number for each spatial axis (L, or H and W)."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    """Padding at the beginning of each axis."""
    after: tuple[int, ...]
    """Padding at its end."""
    dilation: tuple[int, ...]
    pool: tuple[int, ...]
    """Results of which the largest is the output, along each axis; `MOST_POOL` all together."""

    @classmethod
    def of(
        cls,
        axes: int,
        stride: int | Sequence[int],
        padding: int | Sequence[int],
        dilation: int | Sequence[int],
        pool: int | Sequence[int] = 1,
    ) -> Window:
        """Build a window from one number for all axes, or one an axis.

        `padding` may also give all begins, then all ends. Raises ValueError, which names the
        argument, for other lengths and for numbers out of range.
        """
        pads = _numbers("padding", padding, (axes, 2 * axes), least=0)
        return cls(
            _numbers("stride", stride, (axes,), least=1),
            pads[:axes],
            pads[-axes:],
            _numbers("dilation", dilation, (axes,), least=1),
            _numbers("pool", pool, (axes,), least=1),
        )


@dataclass(frozen=True)
class PackedFilters:
    """Quantized filters as kernels read them: `w = q * scale`.

    `packed` uint8, contiguous and 64-byte aligned, is what `pack_filters` returns for filters of
    `shape` [O, I/groups, k] or [O, I/groups, kh, kw], or mapped from a file; `scale` float32 [O].
    """

    packed: Bytes
    shape: tuple[int, ...]
    groups: int
    scale: Float32
    format: WeightFormat = WeightFormat.INT8

    @property
    def axes(self) -> int:
        """Spatial axes: 1 or 2."""
        return len(self.shape) - 2


def pack_filters(q: Int8, groups: int = 1) -> Bytes:
    """Pack int8 `q` [O, I/groups, k] or [O, I/groups, kh, kw] into new aligned memory.

    Raises TypeError for another dtype, ValueError for another rank, an empty kernel, and groups
    that do not divide O.
    """
    if q.dtype != np.int8:
        raise TypeError(f"q: needs int8, not {q.dtype}")
    axes = q.ndim - 2
    shape = _native_shape(q.shape, groups, Window.of(max(axes, 0), 1, 0, 1))
    packed = aligned(shape.packed_bytes())
    kernel = _two_axes(q.shape[2:], 1)
    shape.pack(np.ascontiguousarray(q).reshape(*q.shape[:2], *kernel), packed)
    return packed


def filter_bytes(shape: tuple[int, ...], groups: int = 1) -> int:
    """Bytes of packed filters of `shape` [O, I/groups, *kernel]; ValueError as `pack_filters`."""
    window = Window.of(max(len(shape) - 2, 0), 1, 0, 1)
    size: int = _native_shape(shape, groups, window).packed_bytes()
    return size


def unpack_filters(packed: Bytes, shape: tuple[int, ...], groups: int = 1) -> Int8:
    """Return the int8 filters of `shape` [O, I/groups, *kernel] in `packed` (any alignment).

    Raises ValueError for another dtype than uint8 and another size.
    """
    if packed.dtype != np.uint8 or packed.shape != (filter_bytes(shape, groups),):
        wanted = f"uint8 ({filter_bytes(shape, groups)},)"
        raise ValueError(f"packed: needs {wanted}, not {packed.dtype} {packed.shape}")
    outputs, inputs, taps = shape[0], shape[1], prod(shape[2:])
    if inputs == 1 and taps <= _DEPTHWISE_TAPS:
        return packed.view(np.int8).reshape(shape)
    n = outputs // groups
    parts = [unpack(part, n, taps * inputs) for part in np.split(packed, groups)]
    q = np.stack(parts).reshape(outputs, taps, inputs).transpose(0, 2, 1)
    return np.ascontiguousarray(q).reshape(shape)


class _Convolution:
    """What Conv1d and Conv2d share."""

    __slots__ = ("_native", "_shape", "activation", "bias", "filters", "run", "window")
    _axes: ClassVar[int]

    run: Callable[..., None]
    """The layer over addresses, for front ends: no checks, no Python in between.

    `run(x, n, h, w, out, threads=0)`: `x` is the address of contiguous float32 [n, C, h, w], `out`
    of [n, O, h', w'] apart from it (`output_shape`); h is 1 for Conv1d. `threads` 0 means
    `num_threads()`. The caller keeps the memory alive.
    """

    def __init__(
        self,
        filters: PackedFilters,
        window: Window,
        bias: Float32 | None = None,
        activation: str | Activation = "none",
    ) -> None:
        if filters.axes != self._axes:
            raise ValueError(
                f"filters: shape {filters.shape}; {type(self).__name__} needs {self._axes + 2} axes"
            )
        self.filters = filters
        self.window = window
        self.bias = bias
        self.activation = Activation.parse(activation)
        self._shape = _native_shape(filters.shape, filters.groups, window)
        self._native = _native.Conv(
            self._shape,
            filters.packed,
            filters.scale,
            bias,
            self.activation.code,
            filters.format.value,
        )
        self.run = self._native.run

    @classmethod
    def from_float(
        cls: type[_C],
        w: Any,
        bias: Any = None,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        pool: int | Sequence[int] = 1,
        activation: str | Activation = "none",
    ) -> _C:
        """Quantizes and packs float filters `w` [O, I/groups, *kernel], with `bias` [O] or None.

        `stride`, `dilation` and `pool` are one number, or one for each spatial axis; `padding` too,
        or all begins and then all ends: (top, left, bottom, right). Raises TypeError for dtypes
        other than float32, float16 and bfloat16, ValueError, which names the argument, for shapes,
        numbers out of range, NaN and infinity in `w`, and unknown activations.
        """
        values = array_of(w, "w", np.float32)
        if values.ndim != cls._axes + 2:
            kernel = "[O, I/groups, k]" if cls._axes == 1 else "[O, I/groups, kh, kw]"
            raise ValueError(f"w: needs shape {kernel}, not {values.shape}")
        window = Window.of(cls._axes, stride, padding, dilation, pool)
        _native_shape(values.shape, groups, window)  # its errors come before the work
        try:
            found = quantize_weight(values, Grid.of(QType.INT8, symmetric=True), 0)
        except ValueError as error:
            raise ValueError(f"w: {error}") from None
        filters = PackedFilters(
            pack_filters(found.q, groups), values.shape, groups, found.qparams.scale
        )
        return cls.from_packed(filters, window, bias, activation)

    @classmethod
    def from_packed(
        cls: type[_C],
        filters: PackedFilters,
        window: Window,
        bias: Any = None,
        activation: str | Activation = "none",
    ) -> _C:
        """Build a layer over filters that are packed already; they are referred to, not copied.

        Raises TypeError or ValueError where something does not fit, naming it.
        """
        array_of(filters.packed, "packed", np.uint8)
        array_of(filters.scale, "scale", np.float32, filters.shape[:1])
        values = None if bias is None else array_of(bias, "bias", np.float32, filters.shape[:1])
        return cls(filters, window, values, activation)

    @property
    def out_channels(self) -> int:
        """O, all groups together."""
        return self.filters.shape[0]

    @property
    def in_channels(self) -> int:
        """C, all groups together."""
        return self.filters.shape[1] * self.filters.groups

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the output's shape for an input of `shape`.

        Raises ValueError where the channels differ or the padded image is smaller than the kernel.
        """
        if len(shape) != self._axes + 2 or shape[1] != self.in_channels:
            needs = _AXES[self._axes].replace("C", str(self.in_channels))
            raise ValueError(f"x: needs shape {needs}, not {tuple(shape)}")
        sizes = self._shape.pooled(*_two_axes(shape[2:], 1))[-self._axes :]
        if 0 in sizes:
            window = self.window
            kernel = self.filters.shape[2:]
            parts = zip(kernel, window.dilation, window.stride, window.pool, strict=True)
            spans = tuple(d * (k - 1) + 1 + s * (p - 1) for k, d, s, p in parts)
            padded = tuple(
                b + s + a for b, s, a in zip(window.before, shape[2:], window.after, strict=True)
            )
            raise ValueError(
                f"x: with padding it is {padded}, smaller than the kernel's {spans} (dilation "
                "and pool included); pad it, or use a smaller kernel"
            )
        return (shape[0], self.out_channels, *sizes)

    def __repr__(self) -> str:
        window = self.window
        return (
            f"{type(self).__name__}({self.in_channels} -> {self.out_channels}, int8, "
            f"kernel={self.filters.shape[2:]}, stride={window.stride}, "
            f"padding={window.before + window.after}, dilation={window.dilation}, "
            f"groups={self.filters.groups}, pool={window.pool}, bias={self.bias is not None}, "
            f"activation={self.activation.value})"
        )

    def __call__(self, x: Any, out: Any = None, threads: int = 0) -> Any:
        """Compute the outputs [N, O, ...] for float32 `x` [N, C, ...], in its kind of array.

        `out` is written and returned where it is given; it is contiguous and has nothing in common
        with `x`. `threads` 0 means `num_threads()`. Raises TypeError or ValueError, which name the
        argument, before anything is written.
        """
        checked_threads(threads)
        rows = _contiguous(x)
        shape = self.output_shape(rows.shape)
        if out is None:
            out = new_like(x, shape, rows.dtype)
        to = output_rows(out, "out", shape, rows.dtype)
        if not _is_whole(to):
            raise ValueError("out: needs to be contiguous")
        if overlap(to, rows):
            raise ValueError("out: shares memory with x")
        h, w = _two_axes(rows.shape[2:], 1)
        self.run(rows.address, rows.shape[0], h, w, to.address, threads)
        return out


class Conv1d(_Convolution):
    """Filters over [N, C, L]: float32 in, float32 [N, O, L'] out.

    Made by `from_float` or `from_packed`; nothing changes it afterwards, and any number of threads
    may call it at once.
    """

    __slots__ = ()
    _axes = 1


class Conv2d(_Convolution):
    """Filters over [N, C, H, W]: float32 in, float32 [N, O, H', W'] out.

    Made by `from_float` or `from_packed`; nothing changes it afterwards, and any number of threads
    may call it at once.
    """

    __slots__ = ()
    _axes = 2


def _native_shape(shape: tuple[int, ...], groups: int, window: Window) -> Any:
    """Return the C++ core's convolution shape; one axis is a height of 1. Raises ValueError."""
    if len(shape) not in (3, 4):
        raise ValueError(f"filters: shape {shape}; needs [O, I/groups, k] or [O, I/groups, kh, kw]")
    kernel = _numbers("kernel", shape[2:], (len(shape) - 2,), least=1)
    (count,) = _numbers("groups", groups, (1,), least=1)
    if shape[0] % count:
        raise ValueError(f"groups: {count} does not divide the {shape[0]} output channels")
    return _native.ConvShape(
        shape[0],
        shape[1] * count,
        count,
        _two_axes(kernel, 1),
        _two_axes(window.stride, 1),
        _two_axes(window.dilation, 1),
        _two_axes(window.before, 0),
        _two_axes(window.after, 0),
        _two_axes(window.pool, 1),
    )


def _two_axes(sizes: Sequence[int], first: int) -> tuple[int, int]:
    return (first, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _numbers(
    name: str, value: int | Sequence[int], lengths: tuple[int, ...], *, least: int
) -> tuple[int, ...]:
    """Return `value` as a tuple whose length is one of `lengths`.

    A single number is repeated as many times as the first of `lengths` says.
    """
    one = isinstance(value, (int, np.integer))
    numbers = (int(value),) * lengths[0] if one else tuple(int(v) for v in value)  # type: ignore[arg-type, union-attr]
    if len(numbers) not in lengths:
        allowed = " or ".join(str(length) for length in lengths)
        raise ValueError(f"{name}: {value!r} must be one number, or {allowed} of them")
    if any(not least <= v <= _MOST for v in numbers):
        raise ValueError(f"{name}: {value!r} must be {least} or more")
    return numbers


def _is_whole(rows: Rows) -> bool:
    return rows.rows <= 1 or rows.stride == rows.columns


def _contiguous(x: Any) -> Rows:
    """Return `x` as float32 without gaps: a copy where it has some."""
    rows = rows_of(x, "x")
    if rows.dtype is not FloatType.FLOAT32:
        raise TypeError(f"x: needs float32, not {rows.dtype.name.lower()}; convert it first")
    if _is_whole(rows):
        return rows
    owner = rows.owner
    return rows_of(owner.contiguous() if is_tensor(owner) else np.ascontiguousarray(owner), "x")
