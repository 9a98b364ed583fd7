"""How far one series of arrays is from another, added up array by array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.metrics import sqnr_db

BLOCK = 2**20
"""Elements that are widened to float64 at a time."""


class Tally:
    """Sums over pairs of arrays of equal shapes, of any real type.

    What counts are elements at which the reference is finite. `values` is how many there are,
    `non_finite` at how many of them the other is not; `reference_non_finite` are the elements that
    are left out, as the reference itself is not finite there.
    """

    def __init__(self) -> None:
        self.values = self.non_finite = self.reference_non_finite = 0
        self.largest = 0.0
        """The largest absolute difference where both are finite."""
        self._signal = self._other = self._product = self._noise = 0.0

    def add(self, reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
        """Counts one pair. Raises ValueError where the shapes differ."""
        if reference.shape != other.shape:
            raise ValueError(f"shapes {reference.shape} and {other.shape}")
        a, b = reference.reshape(-1), other.reshape(-1)
        for start in range(0, a.size, BLOCK):
            block = slice(start, start + BLOCK)
            self._add(a[block].astype(np.float64), b[block].astype(np.float64))

    def _add(self, a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> None:
        known, both = np.isfinite(a), np.isfinite(a) & np.isfinite(b)
        self.values += int(known.sum())
        self.reference_non_finite += int(a.size - known.sum())
        self.non_finite += int(known.sum() - both.sum())
        a, b = a[both], b[both]
        difference = b - a
        self._signal += float(a @ a)
        self._other += float(b @ b)
        self._product += float(a @ b)
        self._noise += float(difference @ difference)
        self.largest = max(self.largest, float(np.abs(difference).max(initial=0.0)))

    @property
    def error(self) -> float:
        """`octavo.core.metrics.relative_error` of all as one; infinite for a non-finite other."""
        if self.non_finite:
            return math.inf
        if self._signal == 0.0 or not math.isfinite(self._noise):
            return 0.0 if self._noise == 0.0 else math.inf
        return 0.5 * self._noise / self._signal

    @property
    def sqnr_db(self) -> float:
        """`octavo.core.metrics.sqnr_db` of all as one; -inf for a non-finite other."""
        return -math.inf if self.non_finite else sqnr_db(self._signal, self._noise)

    @property
    def cosine(self) -> float | None:
        """Of all as one vector each; None without direction: non-finite, or one of two is zero."""
        length = math.sqrt(self._signal) * math.sqrt(self._other)
        if self.non_finite or not self.values:
            return None
        if length == 0.0:
            return 1.0 if self._signal == self._other else None
        return max(-1.0, min(1.0, self._product / length))


def holds_numbers(value: Any) -> bool:
    """Whether it is an array of numbers or truth values."""
    # bfloat16 and its like are of kind V.
    known = isinstance(value, np.ndarray)
    return known and (
        value.dtype.kind in "fiub" or value.dtype.name.startswith(("bfloat", "float"))
    )
