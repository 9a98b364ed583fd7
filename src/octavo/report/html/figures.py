"""Numbers as a page shows them: texts, lengths of bars, and what cells are sorted by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from octavo.results import words

_SHORTEST = 0.04  # a bar that is there can be seen
_LEAST_DB = 10.0  # differences of less do not fill a bar


def latency(seconds: float | None) -> str:
    """`812 µs`, `4.20 ms`, `1.23 s`; nothing where there is no number."""
    return words.latency(seconds).replace(" us", " µs")


def share(x: float) -> float | None:
    """`x` as the length of a bar; None where it is no number."""
    return min(1.0, max(0.0, x)) if math.isfinite(x) else None


def sortable(x: float | int | None) -> float | int | None:
    """What a cell is sorted by: None where there is no number."""
    return None if x is None or math.isnan(x) else x


def bars(values: Iterable[float | int | None]) -> Callable[[float | int | None], float | None]:
    """The lengths of bars for `values` above zero, the largest's being 1."""
    rated = [v for v in values if v is not None and 0 < v < math.inf]
    largest = max(rated, default=None)

    def length(value: float | int | None) -> float | None:
        if value is None or largest is None:
            return None
        return round(min(1.0, value / largest), 3)

    return length


def noise_bars(decibels: Iterable[float]) -> Callable[[float], float]:
    """The lengths of bars for signal to noise ratios: the less, the longer; 0 without noise."""
    rated = [x for x in decibels if math.isfinite(x)]
    low, high = min(rated, default=0.0), max(rated, default=0.0)
    span = max(high - low, _LEAST_DB)

    def length(x: float) -> float:
        if not math.isfinite(x):
            return 0.0 if x > 0 else 1.0
        return round(_SHORTEST + (1 - _SHORTEST) * min(1.0, 1 - (x - low) / span), 3)

    return length
