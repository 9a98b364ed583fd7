"""Weights to integers with the rounding of torch's quantized tensors.

In NumPy, in parts that fit the cache, on one thread: torch's operations would wait for all of their
threads after each small step, which is slow on a machine that has other work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.torch.qconfig.observer_base import Float32

_PART = 1 << 16  # weights quantized at one time


def rounded(
    w: Float32,
    scale: Float32,
    zero_point: Float32,
    axis: int | None,
    bounds: tuple[int, int],
    dtype: str,
) -> tuple[npt.NDArray[Any], float, float]:
    """Return (q, signal, noise) of a finite weight of any shape; q in that shape, within `bounds`.

    `scale` and `zero_point` are float32 [channels], 1 where `axis` is None; the integers are those
    of torch.quantize_per_tensor and torch.quantize_per_channel, of torch 2.13 on x86. `signal` and
    `noise` are the sums of `w**2` and `((q - zero_point) * scale - w)**2`.
    """
    q = np.empty(w.shape, dtype)
    signal = noise = 0.0
    for part, into, own_scale, own_zero in _parts(w, q, scale, zero_point, axis):
        steps = _steps(part, own_scale, own_zero, axis is None)
        into[...] = np.clip(steps, *bounds, out=steps)
        signal += _sum_of_squares(part)
        steps -= own_zero
        steps *= own_scale
        steps -= part
        noise += _sum_of_squares(steps)
    return q, signal, noise


def _parts(
    w: Float32, q: npt.NDArray[Any], scale: Float32, zero: Float32, axis: int | None
) -> Iterator[tuple[Float32, npt.NDArray[Any], Float32, Float32]]:
    """Yield, a few rows at a time, the weight, where its integers go, scales and zero points."""
    if w.size == 0:
        return
    shape = [1] * max(w.ndim, 1)
    if axis is not None:
        shape[axis] = -1
    scale, zero = scale.reshape(shape), zero.reshape(shape)
    w, q = np.atleast_1d(w), np.atleast_1d(q)
    rows = max(1, _PART * len(w) // w.size)
    for start in range(0, len(w), rows):
        here = slice(start, start + rows)
        own = here if axis == 0 else slice(None)
        yield w[here], q[here], scale[own], zero[own]


def _steps(w: Float32, scale: Float32, zero: Float32, whole_tensor: bool) -> Float32:
    """Return `round_half_even(w * (1 / scale) + zero)`, integers in float32.

    The reciprocal is float32's. For a whole tensor product and sum are one fused multiply-add, by
    channel each is rounded, as torch 2.13 does it on x86, whatever the dtypes.
    """
    inverse = np.float32(1) / scale
    with np.errstate(over="ignore"):  # what is infinite is clipped, as all that is too large
        if whole_tensor and zero.any():
            # The product is exact in float64. So is the sum, or so near that rounding it again does
            # not show: that takes a sum halfway between two float32, one of them halfway itself.
            steps = np.multiply(w, inverse, dtype=np.float64)
            steps += zero
            sums: Float32 = steps.astype(np.float32)
        else:
            sums = w * inverse
            sums += zero
    return np.rint(sums, out=sums)


def _sum_of_squares(x: Float32) -> float:
    return float(np.square(x, dtype=np.float64).sum())
