"""Storage types of quantized tensors, the integer grids they offer, scales and zero points."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import DTypeLike

from octavo.errors import RecipeError, did_you_mean


class QType(Enum):
    """How the numbers of a tensor are stored."""

    INT4 = "int4"
    INT8 = "int8"
    UINT8 = "uint8"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    @property
    def is_integer(self) -> bool:
        """Tell whether values are integers with a scale."""
        return self in (QType.INT4, QType.INT8, QType.UINT8)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy dtype that holds one value; 4 bits are packed."""
        return np.dtype(np.uint8 if self is QType.INT4 else self.value)

    @property
    def bytes(self) -> int:
        """Bytes of one stored value."""
        return self.dtype.itemsize

    @classmethod
    def parse(cls, text: str) -> QType:
        """Return the type called `text`; `RecipeError` names the known ones."""
        try:
            return cls(text)
        except ValueError:
            known = [t.value for t in cls]
            raise RecipeError(f"unknown qtype {text!r}.{did_you_mean(text, known)}") from None


@dataclass(frozen=True)
class Grid:
    """The integers that quantized weights may take: `qmin..qmax` around `zero_point`.

    A symmetric grid has a fixed zero point and as many steps below it as above, so that w and -w
    get integers of the same size; an affine grid has its zero point chosen from the data.
    """

    qmin: int
    qmax: int
    symmetric: bool
    zero_point: int
    dtype: DTypeLike

    @classmethod
    def of(cls, qtype: QType, *, symmetric: bool, reduce_range: bool = False) -> Grid:
        """Return the grid of an integer `qtype`.

        | | int8 | uint8 |
        |---|---|---|
        | symmetric | -127..127, zero at 0 | 1..255, zero at 128 |
        | affine | -128..127 | 0..255 |
        | symmetric, reduce_range | -64..64, zero at 0 | 0..128, zero at 64 |
        | affine, reduce_range | -64..63 | 0..127 |

        With reduce_range the sum of two products of a weight and a uint8 fits into int16, so that
        kernels that saturate (x86 without VNNI) do not.
        """
        if qtype not in (QType.INT8, QType.UINT8):
            raise RecipeError(f"a grid needs int8 or uint8, not {qtype.value!r}")
        half = 64 if reduce_range else 127
        zero = 0 if qtype is QType.INT8 else (64 if reduce_range else 128)
        if symmetric:
            return cls(zero - half, zero + half, True, zero, qtype.dtype)
        low = -half - (0 if reduce_range else 1) if qtype is QType.INT8 else 0
        return cls(low, low + (127 if reduce_range else 255), False, 0, qtype.dtype)


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
        """Return `(q - zero_point) * scale`, float32, in the shape of `q`."""
        scale, zero = self._spread(q.ndim)
        steps: Float32 = (q.astype(np.int32) - zero).astype(np.float32)
        return np.multiply(steps, scale, dtype=np.float32)

    def quantize(self, w: Float32, grid: Grid) -> npt.NDArray[Any]:
        """Return `clamp(round_half_even(w / scale) + zero_point, qmin, qmax)` in `grid.dtype`.

        This is the plain statement of what `octavo.core.kernels.quantize_weight` computes faster.
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
