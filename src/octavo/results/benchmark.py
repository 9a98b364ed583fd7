"""What a benchmark measured: a row for each pair of models, figures of each.

inputs ids=1x128, 1 thread
model        latency  spread  per s     load    memory     size
a.onnx       8.10 ms    3.7%    123  95.0 ms  181.0 MB  90.4 MB
a.int8.onnx  4.21 ms    2.4%    238  40.1 ms   61.0 MB  23.1 MB

  a.int8.onnx: faster, takes 0.520 of the time of a.onnx (0.510 to 0.530): 1.92x as fast
...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from octavo.core.data import Data, plain
from octavo.results import words
from octavo.results.names import grouped
from octavo.results.page import Line, Page, Result, Table, columns, indented, line, noted
from octavo.results.words import clean, duration, latency, size

CONFIDENCE = 0.99
"""How sure an interval is. Ten comparisons of equals have two false alarms once in 230 times."""

# docs/notes/tuning.md: "Small differences are none"
SMALLEST = 0.015
"""A difference below this is not called one.

It is half of the 3% that are to be found. On a busy machine whole runs of a model against itself
were seen to differ by more than their intervals allow.
"""

TELLS = 0.03
"""An interval with equality inside that reaches further than 3% from it tells nothing."""

WIDE = 1.25
"""Bounds that are this many times apart are told in place of the ratio between them."""

BUSY = (
    "this machine is busy: no speed can be told. End what else runs on it, or use fewer threads, "
    "and time again"
)


class Verdict(str, Enum):
    """What may be said of the second model of a pair, seen from the first."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOISY = "noisy"


_STYLES = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold yellow",
    Verdict.SAME: "",
    Verdict.NOISY: "bold red",
}


@dataclass(frozen=True)
class Pair(Data):
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
        """Return how far from 1 the interval reaches."""
        return max(self.high - 1, 1 - self.low)

    @property
    def wide(self) -> bool:
        """Tell whether the interval is too wide for its middle to be told alone."""
        return self.high > WIDE * self.low

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
        return {**super().to_dict(), "verdict": self.verdict.value}


@dataclass(frozen=True)
class Timed(Data):
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
class Benchmark(Result):
    """All pairs, and the models themselves, in the order in which they were given.

    `seconds` is what timing took, without what comes before and after it; `notes` say what is not
    as asked; `machine` is where it was (`AMD EPYC 9R14, 2 processors, kernels avx512vnni`).
    """

    rows: tuple[Pair, ...]
    models: tuple[Timed, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    machine: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "rows": plain(self.rows),
            "models": plain(self.models),
            "confidence": CONFIDENCE,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "machine": self.machine,
        }

    def page(self, verbose: bool = False) -> Page:
        """Tables, and a sentence for each pair; always all of it."""
        short = short_names([one.name for one in self.models])
        for (shape, threads), models in grouped(self.models, lambda one: (one.shape, one.threads)):
            if heading := conditions(shape, threads):
                yield line(heading, style="bold")
            yield _table(models, short)
            yield line("")
            for pair in self.rows:
                if (pair.shape, pair.threads) == (shape, threads):
                    yield indented(_sentence(pair, short), 2, "")
            yield line("")
        if any(pair.verdict is Verdict.NOISY for pair in self.rows):
            yield line(
                "Too noisy to tell: close what else runs on this machine, or give it more seconds."
            )
        yield from noted([clean(note) for note in self.notes])
        if self.models:
            yield line(_footnote(self), style="dim")


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Map each name to that name without folders, where no two are alike without them."""
    given = list(dict.fromkeys(names))
    last = [name.replace("\\", "/").rpartition("/")[2] or name for name in given]
    return dict(zip(given, last if len(set(last)) == len(given) else given, strict=True))


def conditions(shape: str, threads: int | None) -> str:
    """Say the inputs and threads of a timing, as far as known: `inputs ids=1x128, 1 thread`."""
    inputs = f"inputs {clean(shape.replace(',', ', '))}" if shape else ""
    count = "" if threads is None else words.count(threads, "thread")
    return ", ".join(filter(None, (inputs, count)))


def _table(models: Sequence[Timed], short: dict[str, str]) -> Table:
    figures = {
        "latency": [latency(one.seconds) for one in models],
        "spread": [f"{one.spread:.1%}" for one in models],
        "per s": [rate(one.per_second) for one in models],
        "load": ["" if one.load_seconds is None else latency(one.load_seconds) for one in models],
        "memory": ["" if one.peak_memory is None else size(one.peak_memory) for one in models],
        "size": ["" if one.bytes is None else size(one.bytes) for one in models],
    }
    shown = {heading: texts for heading, texts in figures.items() if any(texts)}
    table = columns("model", *shown, right=[*shown])
    for i, one in enumerate(models):
        table.add_row(words.name(short[one.name]), *(texts[i] for texts in shown.values()))
    return table


def rate(x: float) -> str:
    """Three significant digits: `8.31`, `123`, `12,300`."""
    return f"{x:.3g}" if x < 1000 else f"{float(f'{x:.3g}'):,.0f}"


def _sentence(pair: Pair, short: dict[str, str]) -> Line:
    a, b = (words.name(short[name]) for name in (pair.a, pair.b))
    interval = f"{times(pair.low)} to {times(pair.high)}"
    heading, rest = {
        Verdict.FASTER: (
            "faster",
            f", takes {times(pair.ratio)} of the time of {a} ({interval}): "
            f"{1 / pair.ratio:.2f}x as fast",
        ),
        Verdict.SLOWER: (
            "slower",
            f", takes {times(pair.ratio)} times as long as {a} ({interval})",
        ),
        Verdict.SAME: ("no difference seen", f" from {a} (within {pair.within:.1%}: {interval})"),
        Verdict.NOISY: ("too noisy to tell", f" from {a} ({interval})"),
    }[pair.verdict]
    return line(f"{b}: ", (heading, _STYLES[pair.verdict]), rest)


def times(x: float) -> str:
    """Format a ratio as `0.523`, `1.031` or `12.5`."""
    return f"{x:.3f}" if x < 10 else f"{x:.3g}"


def _footnote(found: Benchmark) -> str:
    place = f" on {clean(found.machine)}" if found.machine else ""
    return (
        f"Timed in turns for {duration(found.seconds)}{place}. Latency is the median of a run, "
        f"spread the distance of its quartiles. Intervals hold {CONFIDENCE:.0%} of the time; "
        f"differences below {SMALLEST:.1%} are not called so."
    )
