"""Integers that stand in for real ones: ids of a table, and rows of which one is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_MOST_ROWS = 2**22  # of a table that are looked at


def hidden_of(length: int) -> int:
    """How many elements of a short row are hidden: a quarter, and none of a single one."""
    return math.ceil(length / 4) if length > 1 else 0


def spread(
    shape: Sequence[int], rows: int, avoided: Sequence[int], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Indices over all `rows` of a table, in random order, none of the `avoided` if others are
    left: one from each of as many equal parts as there are indices.
    """
    allowed = np.setdiff1d(np.arange(min(rows, _MOST_ROWS)), np.array(avoided, np.int64))
    if not allowed.size:
        allowed = np.arange(max(1, rows))
    count = math.prod(shape)
    places = (np.arange(count) + rng.random(count)) * (allowed.size / max(1, count))
    order = rng.permutation(places.astype(np.int64).clip(0, allowed.size - 1))
    found: npt.NDArray[np.int64] = allowed[order].astype(np.int64).reshape(tuple(shape))
    return found


def end_last_row(array: npt.NDArray[Any], number: float) -> None:
    """Writes `number` into the end of the last of several rows: what is hidden, or padding."""
    hidden = hidden_of(array.shape[-1]) if array.ndim > 1 and len(array) > 1 else 0
    if hidden:
        array[-1, ..., -hidden:] = number
