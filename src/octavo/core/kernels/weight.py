"""Weights to integers: the typed entry point of the C++ weight quantizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.buffers import array_of, array_or_tensor
from octavo.core.kernels.packing import packed_bytes
from octavo.core.kernels.weight_memory import weight_memory
from octavo.core.qparams import Float32, Grid, QParams, QType


@dataclass(frozen=True)
class QuantizedWeight:
    """Integers of a weight, in its shape or packed, with their parameters.

    `signal` and `noise` are the sums over all weights of `w**2` and `(w - dequantized w)**2`.
    """

    q: npt.NDArray[Any]
    qparams: QParams
    signal: float
    noise: float


def quantize_weight(
    w: Any,
    grid: Grid,
    axis: int | None,
    ranges: tuple[Float32, Float32] | None = None,
) -> QuantizedWeight:
    """Quantizes a float32 weight of any shape with one scale for each index of `axis`.

    `axis=None` takes one scale for the whole tensor. `ranges` are (lo, hi), float32 [channels]
    each, to use in place of the weight's own: what lies outside is clipped. The formulas are those
    of `qparams_from_range` and `QParams.quantize`. Raises ValueError on NaN or infinity (the
    message names the channel), on dtypes other than float32 and on ranges that do not fit.
    """
    values, cube = _checked(w, axis, "quantize_weight")
    qparams = _qparams(cube, grid, axis, ranges)
    q = np.empty(cube.shape, grid.dtype)
    scale, zero = qparams.scale, qparams.zero_point
    signal, noise = _native.quantize_channels(cube, grid.qmin, grid.qmax, scale, zero, q)
    return QuantizedWeight(q.reshape(values.shape), qparams, signal, noise)


def quantize_affine_as_onnxruntime(
    w: Any,
    qtype: QType,
    axis: int | None,
    *,
    reduce_range: bool = False,
    ranges: tuple[Float32, Float32] | None = None,
) -> QuantizedWeight:
    """Quantize as `quantize_weight` on an affine grid, with numbers of ONNX Runtime.

    The numbers are those of its quantize_dynamic. Scale and zero point are taken in float64. In 7
    bits (`reduce_range`) a range has 127 steps for uint8 and 128 for int8, and an integer that
    rounding puts behind their end stays there.
    """
    values, cube = _checked(w, axis, "quantize_affine_as_onnxruntime")
    least, most = (0, 255) if qtype is QType.UINT8 else (-128, 127)
    qmin, qmax = least, most
    if reduce_range:
        qmin, qmax = (0, 127) if qtype is QType.UINT8 else (-64, 64)
    lo, hi = (bound.astype(np.float64) for bound in _ranges(cube, axis, ranges))
    exact = (hi - lo) / (qmax - qmin)
    held = exact >= np.finfo(np.float32).tiny
    exact = np.where(held, exact, 1.0)
    zero = np.where(held, np.round(qmin - lo / exact), 0).astype(np.int32)
    qparams = QParams(exact.astype(np.float32), zero, axis)
    q = np.empty(cube.shape, qtype.dtype)
    signal, noise = _native.quantize_channels(cube, least, most, qparams.scale, zero, q)
    return QuantizedWeight(q.reshape(values.shape), qparams, signal, noise)


def quantize_packed(
    w: Any,
    grid: Grid,
    axis: int | None,
    ranges: tuple[Float32, Float32] | None = None,
) -> QuantizedWeight:
    """Quantize float32 `w` [n, k] as `quantize_weight` and pack `q` as `pack` does, in one go.

    `grid` is one of int8, `axis` 0 or None. Raises what both raise.
    """
    values, cube = _checked(w, axis, "quantize_packed")
    if values.ndim != 2 or axis not in (0, None) or grid.dtype != np.int8:
        raise ValueError(
            f"quantize_packed takes a weight [n, k], axis 0 or None and an int8 grid, not "
            f"{values.shape}, {axis} and {np.dtype(grid.dtype)}"
        )
    qparams = _qparams(cube, grid, axis, ranges)
    n, k = values.shape
    scale = np.array(np.broadcast_to(qparams.scale, n))
    zero = np.array(np.broadcast_to(qparams.zero_point, n))
    packed = weight_memory(packed_bytes(n, k))
    signal, noise = _native.quantize_packed(values, grid.qmin, grid.qmax, scale, zero, packed)
    return QuantizedWeight(packed, qparams, signal, noise)


def _checked(w: Any, axis: int | None, caller: str) -> tuple[Float32, Float32]:
    """Return the weight, and a view of it around its channel axis, [outer, channels, inner]."""
    found = array_or_tensor(w, "w")
    if str(found.dtype).removeprefix("torch.") != "float32":
        raise ValueError(f"{caller} takes float32, not {found.dtype}; convert it first")
    values = array_of(found, "w", np.float32)
    return values, values.reshape(_cube_shape(values.shape, axis))


def _qparams(
    cube: Float32, grid: Grid, axis: int | None, ranges: tuple[Float32, Float32] | None
) -> QParams:
    channels = cube.shape[1]
    lo, hi = _ranges(cube, axis, ranges)
    scale, zero = np.empty(channels, np.float32), np.empty(channels, np.int32)
    _native.channel_qparams(
        lo, hi, grid.qmin, grid.qmax, grid.symmetric, grid.zero_point, scale, zero
    )
    return QParams(scale, zero, axis)


def _ranges(
    cube: Float32, axis: int | None, ranges: tuple[Float32, Float32] | None
) -> tuple[Float32, Float32]:
    channels = cube.shape[1]
    lo, hi = np.empty(channels, np.float32), np.empty(channels, np.float32)
    bad = _native.channel_ranges(cube, lo, hi)
    if bad >= 0:
        where = "it" if axis is None else f"channel {bad} along axis {axis}"
        raise ValueError(f"{where} holds NaN or infinity")
    return (lo, hi) if ranges is None else _checked_ranges(ranges, channels)


def _checked_ranges(ranges: tuple[Float32, Float32], channels: int) -> tuple[Float32, Float32]:
    """Return `ranges` as the C++ core wants them: widened to include 0, as every range is."""
    lo, hi = (np.asarray(bound, np.float32) for bound in ranges)
    if lo.shape != (channels,) or hi.shape != (channels,):
        raise ValueError(
            f"ranges are two arrays of shape ({channels},), one element a channel; "
            f"got {lo.shape} and {hi.shape}"
        )
    # The negation also catches NaN.
    bad = np.flatnonzero(~(np.isfinite(lo) & np.isfinite(hi) & (lo <= hi)))
    if bad.size:
        c = int(bad[0])
        raise ValueError(f"the range of channel {c} is {lo[c]}..{hi[c]}: not finite, or lo > hi")
    return np.minimum(lo, np.float32(0)), np.maximum(hi, np.float32(0))


def _cube_shape(shape: tuple[int, ...], axis: int | None) -> tuple[int, int, int]:
    if axis is None:
        return (1, 1, int(np.prod(shape, dtype=np.int64)))
    if not 0 <= axis < len(shape):
        raise ValueError(f"axis {axis} is not in 0..{len(shape) - 1} of shape {shape}")
    outer = int(np.prod(shape[:axis], dtype=np.int64))
    inner = int(np.prod(shape[axis + 1 :], dtype=np.int64))
    return (outer, shape[axis], inner)
