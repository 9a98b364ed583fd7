"""How far one tensor is from another: at once, or added up array by array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt


def sqnr_db(signal: float, noise: float) -> float:
    """Signal to quantization noise ratio in dB, `10 log10(signal / noise)`; inf without noise,
    -inf where the noise is all there is, or overflows."""
    if noise == 0.0:
        return math.inf
    if signal <= 0.0 or not math.isfinite(noise):
        return -math.inf
    return 10.0 * math.log10(signal / noise)


def cosine_error(reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Return `1 - cosine` of two arrays taken as one vector each; 0 for two zero vectors."""
    a = reference.astype(np.float64).ravel()
    b = other.astype(np.float64).ravel()
    norm = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    if norm == 0.0:
        return 0.0 if not a.any() and not b.any() else 1.0
    return max(0.0, 1.0 - float(a @ b) / norm)


def relative_error(reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Half the squared distance over the squared length of `reference`.

    For small errors that keep the length it equals `1 - cosine`; unlike the cosine it also sees a
    wrong scale and works for a single number.
    """
    a = reference.astype(np.float64).ravel()
    d = other.astype(np.float64).ravel() - a
    length, distance = float(a @ a), float(d @ d)
    if length == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return 0.5 * distance / length


BLOCK = 2**20
"""Elements that are widened to float64 at a time."""


class Tally:
    """Sums over pairs of arrays of equal shapes, of any real type.

    What counts are elements at which the reference is finite. `values` is how many there are,
    `non_finite` at how many of them the other is not; `reference_non_finite` are the elements that
    are left out, as the reference itself is not finite there. Where both are the same infinity,
    which is how a model hides a class, they agree, and count for nothing.
    """

    def __init__(self) -> None:
        self.values = self.non_finite = self.reference_non_finite = 0
        self.largest = 0.0
        """The largest absolute difference where both are finite."""
        self._signal = self._other = self._product = self._noise = 0.0

    def add(self, reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
        """Count one pair. Raises ValueError where the shapes differ."""
        if reference.shape != other.shape:
            raise ValueError(f"shapes {reference.shape} and {other.shape}")
        a, b = reference.reshape(-1), other.reshape(-1)
        for start in range(0, a.size, BLOCK):
            block = slice(start, start + BLOCK)
            self._add(a[block].astype(np.float64), b[block].astype(np.float64))

    def _add(self, a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> None:
        known, both = np.isfinite(a), np.isfinite(a) & np.isfinite(b)
        self.values += int(known.sum())
        self.reference_non_finite += int((~known & (a != b)).sum())
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
        """Return `octavo.core.metrics.relative_error` of all pairs as one.

        The error is infinite for a non-finite other, and where nothing of the reference is finite:
        of what was not compared nothing is known.
        """
        if self.non_finite or (not self.values and self.reference_non_finite):
            return math.inf
        if self._signal == 0.0 or not math.isfinite(self._noise):
            return 0.0 if self._noise == 0.0 else math.inf
        return 0.5 * self._noise / self._signal

    @property
    def sqnr_db(self) -> float:
        """Return `octavo.core.metrics.sqnr_db` of all as one; -inf where the error is infinite."""
        return -math.inf if math.isinf(self.error) else sqnr_db(self._signal, self._noise)

    @property
    def cosine(self) -> float | None:
        """Return the cosine of all pairs as one vector each.

        The cosine is None without direction: non-finite, or one of two is zero.
        """
        length = math.sqrt(self._signal) * math.sqrt(self._other)
        if self.non_finite or not self.values:
            return None
        if length == 0.0:
            return 1.0 if self._signal == self._other else None
        return max(-1.0, min(1.0, self._product / length))


def holds_numbers(value: Any) -> bool:
    """Tell whether it is an array of numbers or truth values."""
    # bfloat16 and its like are of kind V.
    known = isinstance(value, np.ndarray)
    return known and (
        value.dtype.kind in "fiub" or value.dtype.name.startswith(("bfloat", "float"))
    )


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
        """Return the share of what was counted that agrees; None where nothing was counted."""
        return self.same / self.rows if self.rows else None

    def add(self, reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
        """Count one pair: equal elements or, of floats, rows with the same argmax."""
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
    """Tell whether rows are vectors of length 1, and no probabilities."""
    if array.ndim < 2 or array.dtype.kind != "f" or not array.size or array.min() >= 0:
        return False
    with np.errstate(all="ignore"):  # what is not finite has no length 1
        lengths = np.linalg.norm(array.astype(np.float64), axis=-1)
    return bool(np.allclose(lengths, 1.0, atol=_NEAR_1))
