"""Trials in words: numbers, recipes and the columns of a table.

All pages share them, so that a number reads the same in each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from octavo.results.names import WIDTH, grouped, shortened
from octavo.results.words import clean, latency, size

if TYPE_CHECKING:
    from octavo.results.tuning import Trial

_LEAST = 0.001  # of losses, in percent or not: less is nothing that an evaluation could tell
_LONG = re.compile(rf"[^\s,;]{{{WIDTH + 1},}}")
_CELL = 60  # columns of a recipe that names its layers
RATIO = "time"
"""The column of times over the float model's."""


def accuracy(x: float | None) -> str:
    """Four significant digits; nothing where there is no number."""
    if x is None:
        return ""
    return f"{x:,.0f}" if 1e4 <= abs(x) < 1e9 else f"{x:.4g}"


@dataclass(frozen=True)
class Bound:
    """How losses are written: `value` is the largest that meets the criterion (None: not known).

    Where `relative`, as percentages. A loss beyond the bound never rounds to it.
    """

    value: float | None = None
    relative: bool = False

    def loss(self, x: float | None) -> str:
        """Format a loss as `0.33%`, or `0.0033` where losses are absolute.

        The text is empty where there is no number.
        """
        if x is None:
            return ""
        if not math.isfinite(x):
            return f"{x:g}"
        scaled = _number(x * self._scale) + 0.0  # no minus before 0
        if 0 < scaled < _LEAST and (self.value is None or self.value * self._scale > _LEAST):
            return f"<{_LEAST:g}{self._unit}"
        shown = _figures(scaled, 3)
        for digits in (5, 8, 12):
            limit = None if self.value is None else _number(self.value * self._scale)
            if limit is None or (float(shown.replace(",", "")) > limit) == (scaled > limit):
                break
            shown = _figures(scaled, digits)
        return shown + self._unit

    @property
    def text(self) -> str:
        """The bound itself, such as `1%`."""
        return "" if self.value is None else f"{_number(self.value * self._scale):g}{self._unit}"

    @property
    def gain(self) -> str:
        """Return what a negative bound asks to gain, such as `2%`."""
        return "" if self.value is None else Bound(-self.value, self.relative).text

    @property
    def _scale(self) -> float:
        return 100.0 if self.relative else 1.0

    @property
    def _unit(self) -> str:
        return "%" if self.relative else ""


def _figures(x: float, digits: int) -> str:
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e9 and digits == 3 else f"{x:.{digits}g}"


def _number(x: float) -> float:
    """Return `x` without what multiplication by 100 adds to it: 57 for 0.57."""
    return float(f"{x:.12g}")


def time_ratio(x: float | None) -> str:
    """Format time over the float model's, such as `0.52`."""
    return "" if x is None else f"{x:.2f}"


def versus_float(trial: Trial) -> str:
    """Say the trial's time over the float model's as a benchmark does; nothing without a ratio.

    `1.92x as fast`, `takes 1.10 times as long`, or `no difference seen`; the first two with the
    interval, if that is known.
    """
    x = trial.time_ratio
    if x is None:
        return ""
    if trial.shows_no_difference:
        return "no difference seen"
    said = f"{1 / x:.2f}x as fast" if 0 < x < 1 else f"takes {x:.2f} times as long"
    if trial.time_low is None or trial.time_high is None:
        return said
    return f"{said}, {trial.time_low:.2f} to {trial.time_high:.2f} of the time"


def float_seconds(trials: Sequence[Trial]) -> float | None:
    """Return the float model's median time in `trials`: that model is timed anew beside each."""
    beside = [t.float_latency for t in trials if t.float_latency is not None]
    return median(beside) if beside else next((t.latency for t in trials if not t.index), None)


def seconds_of(trial: Trial, floating: float | None) -> float | None:
    """Return the seconds of a trial's run where the float model's run takes `floating`.

    The ratio of both was measured in turns, and so is right whatever else the machine did
    meanwhile.
    """
    if floating is None or trial.time_ratio is None:
        return trial.latency
    return floating * trial.time_ratio


def recipe(trial: Trial) -> str:
    """Say the trial's recipe in words."""
    if trial.recipe is None and trial.index == 0:
        return "the float model"
    words = _LONG.sub(lambda m: shortened([m[0]])[0], clean(trial.words)) or "(no words)"
    return f"static: {words}" if trial.is_static and "static" not in words else words


def brief_recipe(trial: Trial) -> str:
    """Say the trial's recipe for a table's cell, without layers' names where they are many."""
    words = recipe(trial)
    return words if len(words) <= _CELL else re.sub(r": [^;]*", "", words)


def outcome(trial: Trial, best: bool) -> str:
    """Say in one word how a trial ended.

    The words are `best`, `met`, `missed`, `nearest` (the best of those that missed) and `failed`.
    """
    if trial.failed:
        return "failed"
    if trial.index == 0:
        return ""
    if trial.meets:
        return "best" if best else "met"
    return "nearest" if best else "missed"


@dataclass(frozen=True)
class Column:
    """One figure of a trial: as text, and as what it is sorted by."""

    heading: str
    text: Callable[[Trial], str]
    value: Callable[[Trial], float | int | None]


def figures(trials: Sequence[Trial], bound: Bound) -> tuple[Column, ...]:
    """Return the columns that some of `trials` have a number for."""
    floating = float_seconds(trials)
    columns = (
        Column("accuracy", lambda t: accuracy(t.accuracy), lambda t: t.accuracy),
        Column("loss", lambda t: bound.loss(t.loss) if t.index else "", lambda t: t.loss),
        Column(
            "latency",
            lambda t: latency(seconds_of(t, floating)),
            lambda t: seconds_of(t, floating),
        ),
        Column(RATIO, lambda t: time_ratio(t.time_ratio), lambda t: t.time_ratio),
        Column("size", lambda t: "" if t.bytes is None else size(t.bytes), lambda t: t.bytes),
        Column(
            "memory",
            lambda t: "" if t.peak_memory is None else size(t.peak_memory),
            lambda t: t.peak_memory,
        ),
    )
    return tuple(c for c in columns if any(c.text(t) for t in trials))


def traceback_lines(error: str, limit: int | None = None) -> list[str]:
    """Return the (last `limit`) lines of a traceback, control characters written as escapes."""
    lines = [line for line in error.expandtabs().split("\n") if line.strip()]
    return [clean(line) for line in (lines if limit is None else lines[-limit:])]


def last_of(error: str) -> str:
    """Return the last line of a traceback: which error it is, and what it says."""
    line = clean(error.rstrip().rpartition("\n")[2].strip())
    return line if len(line) <= 300 else line[:300] + " ..."


def failures(trials: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    """Return each traceback once, with the trials that it ended."""
    return grouped((t for t in trials if t.failed), lambda t: t.error)
