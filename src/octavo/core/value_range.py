"""Bounds and root mean square of a series of arrays, and how many numbers are far from zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 2**16
"""Elements that are widened to float64 at a time: they stay in the cache."""

FALL = 8.0
"""By how much the root mean square may fall, array by array, without an outlier getting lost."""


class Extent:
    """Sums over arrays of any real type, of which the finite numbers count.

    `values` is how many there are, `low` and `high` the smallest and the largest (infinities, the
    wrong way round, where there are none).
    """

    def __init__(self, multiple: float) -> None:
        """Outliers are further from zero than `multiple` times the root mean square."""
        self.values = 0
        self.low, self.high = math.inf, -math.inf
        self._multiple, self._squares = multiple, 0.0
        self._far: npt.NDArray[np.float64] = np.empty(0)

    def add(self, array: npt.NDArray[Any]) -> None:
        """Count the numbers of one array."""
        flat = array.reshape(-1)
        starts = range(0, flat.size, BLOCK)
        peaks = [self._add(_finite(flat, start)) for start in starts]
        # What may yet be an outlier is kept. It is little: at most (FALL / multiple)^2 of all
        # numbers, whatever they are (Chebyshev's inequality).
        bound = self._bound / FALL
        kept = [self._far[self._far > bound]]
        for start, peak in zip(starts, peaks, strict=True):
            if peak > bound:
                sizes = np.abs(_finite(flat, start))
                kept.append(sizes[sizes > bound])
        self._far = np.concatenate(kept)

    def _add(self, block: npt.NDArray[np.float64]) -> float:
        """Count finite numbers, squared in place; return the largest absolute value among them."""
        if not block.size:
            return 0.0
        low, high = float(block.min()), float(block.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.values += block.size
        with np.errstate(over="ignore"):
            # Not `block @ block`: BLAS would share these few among threads, which cost more.
            self._squares += float(np.square(block, out=block).sum())
        return max(abs(low), abs(high))

    @property
    def rms(self) -> float:
        """The root mean square; 0 without numbers, infinite where float64 overflows."""
        return math.sqrt(self._squares / self.values) if self.values else 0.0

    @property
    def outliers(self) -> int:
        """Count the numbers that are outliers, exactly where all came in one array.

        Over several arrays the count is exact where the root mean square of the first ones is
        nowhere more than `FALL` times that of all; else some of their outliers may be missing.
        """
        return int((self._far > self._bound).sum())

    @property
    def _bound(self) -> float:
        return self._multiple * self.rms if self.rms > 0 else math.inf


def _finite(flat: npt.NDArray[Any], start: int) -> npt.NDArray[np.float64]:
    """Return the finite numbers of the block of `flat` that begins at `start`, as float64."""
    block = flat[start : start + BLOCK].astype(np.float64)
    known = np.isfinite(block)
    return block if known.all() else block[known]
