"""How often two arrays of numbers lead to the same decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Agreement:
    """Counts over pairs of arrays of equal shapes.

    Of floating-point numbers: rows along the last axis (of two numbers or more) whose largest
    number is at the same place; a row that is not finite agrees with none. Of other types: elements
    that are equal.
    """

    def __init__(self) -> None:
        self.rows = self.same = 0

    @property
    def share(self) -> float | None:
        """Of what was counted, how much agrees; None for nothing."""
        return self.same / self.rows if self.rows else None

    def add(self, reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
        """Counts one pair."""
        if reference.dtype.kind != "f":
            self._count(np.equal(reference, other))
        elif reference.ndim and reference.shape[-1] > 1 and reference.size:
            known = np.isfinite(other).all(axis=-1)
            self._count(known & (reference.argmax(axis=-1) == other.argmax(axis=-1)))

    def _count(self, same: npt.NDArray[np.bool_]) -> None:
        self.rows += same.size
        self.same += int(same.sum())


_NEAR_1 = 1e-3  # float16 has 11 bits


def is_unit(array: Any) -> bool:
    """Whether rows are vectors of length 1, and no probabilities."""
    if array.ndim < 2 or array.dtype.kind != "f" or not array.size or array.min() >= 0:
        return False
    with np.errstate(all="ignore"):  # what is not finite has no length 1
        lengths = np.linalg.norm(array.astype(np.float64), axis=-1)
    return bool(np.allclose(lengths, 1.0, atol=_NEAR_1))
