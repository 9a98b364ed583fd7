"""How far the outputs of a quantized model are from the float one's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.metrics import Tally

Runs = Sequence[Sequence[Any]]
"""The outputs of each run, in the model's order."""


def worst_error(expected: Runs, got: Runs) -> float:
    """The relative error of the worst floating-point output, over all runs as one.

    Infinite where `got` has another shape, or is not finite where `expected` is. A model without
    floating-point outputs is judged by its other numbers.
    """
    outputs = list(zip(zip(*expected, strict=True), zip(*got, strict=True), strict=True))
    floats = [pair for pair in outputs if all(_kind(a) == "f" for a in pair[0])]
    others = [pair for pair in outputs if all(_kind(a) in "iub" for a in pair[0])]
    return max((_error(a, b) for a, b in floats or others), default=0.0)


def _kind(value: Any) -> str:
    return value.dtype.kind if isinstance(value, np.ndarray) else "?"


def _error(expected: Sequence[npt.NDArray[Any]], got: Sequence[npt.NDArray[Any]]) -> float:
    tally = Tally()
    for theirs, ours in zip(expected, got, strict=True):
        if theirs.shape != ours.shape:
            return math.inf
        tally.add(theirs, ours)
    return tally.error
