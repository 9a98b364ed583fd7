"""How far one tensor is from another."""

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
    """`1 - cosine` of two arrays taken as one vector each; 0 for two zero vectors."""
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
