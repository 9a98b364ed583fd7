"""What a benchmark measured, as plain data: a row for each pair of models, figures of each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

CONFIDENCE = 0.99
"""How sure an interval is. Ten comparisons of equals have two false alarms once in 230 times."""

SMALLEST = 0.015
"""A difference below this is not called one.

It is half of the 3% that are to be found. On a busy machine whole runs of a model against itself
were seen to differ by more than their intervals allow.
"""

TELLS = 0.03
"""An interval with equality inside that reaches further than 3% from it tells nothing."""


class Verdict(str, Enum):
    """What may be said of the second model of a pair, seen from the first."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOISY = "noisy"


@dataclass(frozen=True)
class Pair:
    """The time of `b` over the time of `a`: 0.5 is half the time, 1.03 is 3% more.

    `low` and `high` bound the ratio with `CONFIDENCE`. `shape` is that of the inputs
    (`ids=1x128,mask=1x128`; empty for callables), `threads` None where it was left to the runtime;
    `openings` counts how often both were opened afresh and timed in turns.
    """

    a: str
    b: str
    shape: str
    threads: int | None
    ratio: float
    low: float
    high: float
    openings: int

    @property
    def within(self) -> float:
        """How far from 1 the interval reaches."""
        return max(self.high - 1, 1 - self.low)

    @property
    def verdict(self) -> Verdict:
        """A difference that the interval excludes by chance, none, or that it cannot be told."""
        if self.low > 1 and self.ratio >= 1 + SMALLEST:
            return Verdict.SLOWER
        if self.high < 1 and self.ratio <= 1 - SMALLEST:
            return Verdict.FASTER
        return Verdict.SAME if self.within <= TELLS else Verdict.NOISY

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "verdict": self.verdict.value}


@dataclass(frozen=True)
class Timed:
    """One model on inputs of one shape. Seconds are medians, `low` and `high` their quartiles.

    `per_second` counts what one call handles: the entries of a batch where there is one.
    `runs` counts calls that were timed. What was not measured is None: the size of its files in
    bytes, the seconds that a session takes to open (files in the page cache), the bytes that
    opening and one run add to a fresh process.
    """

    name: str
    shape: str
    threads: int | None
    seconds: float
    low: float
    high: float
    per_second: float
    runs: int
    bytes: int | None = None
    load_seconds: float | None = None
    load_low: float | None = None
    load_high: float | None = None
    peak_memory: int | None = None

    @property
    def spread(self) -> float:
        """Distance of the quartiles, as a share of the median."""
        return (self.high - self.low) / self.seconds


@dataclass(frozen=True)
class Benchmark:
    """All pairs, and the models themselves, in the order in which they were given.

    `seconds` is what it all took; `notes` say what is not as asked.
    """

    rows: tuple[Pair, ...]
    models: tuple[Timed, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "rows": [pair.to_dict() for pair in self.rows],
            "models": [asdict(timed) for timed in self.models],
            "confidence": CONFIDENCE,
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        from octavo.report.bench import bench_text

        return bench_text(self)
