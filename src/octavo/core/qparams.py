"""Scales and zero points, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.qtype import Grid

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class QParams:
    """Scale and zero point of a tensor: one pair, or one for each index of `axis`.

    `scale` float32 [channels], `zero_point` int32 [channels]; channels is 1 and `axis` None for a
    whole tensor. A value is `(q - zero_point) * scale`.
    """

    scale: Float32
    zero_point: Int32
    axis: int | None

    def dequantize(self, q: npt.NDArray[Any]) -> Float32:
        """`(q - zero_point) * scale`, float32, in the shape of `q`."""
        scale, zero = self._spread(q.ndim)
        steps: Float32 = (q.astype(np.int32) - zero).astype(np.float32)
        return np.multiply(steps, scale, dtype=np.float32)

    def quantize(self, w: Float32, grid: Grid) -> npt.NDArray[Any]:
        """`clamp(round_half_even(w / scale) + zero_point, qmin, qmax)` in `grid.dtype`.

        The plain statement of what `octavo.core.kernels.quantize_weight` computes faster.
        """
        scale, zero = self._spread(w.ndim)
        steps = np.clip(np.rint(w / scale), grid.qmin - zero, grid.qmax - zero)
        integers: npt.NDArray[Any] = (steps.astype(np.int32) + zero).astype(grid.dtype)
        return integers

    def _spread(self, ndim: int) -> tuple[Float32, Int32]:
        shape = [1] * ndim
        if self.axis is not None:
            shape[self.axis] = -1
        return self.scale.reshape(shape), self.zero_point.reshape(shape)


def qparams_from_range(lo: Float32, hi: Float32, grid: Grid, axis: int | None) -> QParams:
    """Scale and zero point of the range `lo..hi` (each float32 [channels]), widened to include 0.

    Symmetric: `scale = max(-lo, hi) / ((qmax - qmin) / 2)`. Affine: `scale = hi/steps - lo/steps`
    with `steps = qmax - qmin` (so that it cannot overflow) and
    `zero_point = clamp(qmin + round_half_even(-lo / scale), qmin, qmax)`.
    A channel whose scale would be zero has scale 1.
    """
    lo = np.minimum(np.asarray(lo, np.float32), np.float32(0))
    hi = np.maximum(np.asarray(hi, np.float32), np.float32(0))
    steps = np.float32(grid.qmax - grid.qmin)
    if grid.symmetric:
        scale = np.maximum(-lo, hi) / (steps / np.float32(2))
    else:
        scale = hi / steps - lo / steps
    scale = np.where(scale > 0, scale, np.float32(1)).astype(np.float32)
    if grid.symmetric:
        zero = np.full(scale.shape, grid.zero_point, np.int32)
    else:
        zero = np.clip(grid.qmin + np.rint(-lo / scale), grid.qmin, grid.qmax).astype(np.int32)
    return QParams(scale, zero, axis)
