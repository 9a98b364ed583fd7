"""What a page is made of, and numbers as it shows them.

Texts are plain: whatever draws them escapes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from octavo.results import words


@dataclass(frozen=True)
class Tile:
    """One large figure; `share` (0 to 1, of the float model's) is drawn as a bar."""

    label: str
    value: str
    detail: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Strip:
    """A range as a picture: a line from `low` to `high`, a box around zero.

    All are parts of the range's largest absolute value, -1 to 1, so that zero is in the middle.
    """

    low: float
    high: float
    box_low: float
    box_high: float


@dataclass(frozen=True)
class Cell:
    """A table's cell; `value` is the number that it is sorted by (None: by its text).

    `mark` is a word beside the text. `tone`, one of good, warn, bad and dim, colours the mark, or
    the text where there is none. `detail` stands below, `bar` is the length (0 to 1) of one.
    """

    text: str
    value: float | int | None = None
    tone: str = ""
    mark: str = ""
    detail: str = ""
    bar: float | None = None
    strip: Strip | None = None


NAME, KEY, TEXT, FIGURE, RANGE, INDEX = "name", "key", "text", "figure", "range", "index"
"""Kinds of columns: what a row is called, the same where it is short, words, a number, two numbers
with a picture, its place in some order."""


@dataclass(frozen=True)
class Column:
    """A table's column; `hint` says what its heading means."""

    heading: str
    kind: str = TEXT
    hint: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; `template` draws it.

    `intro` says what is to be seen, `how` how to read it.
    """

    template: ClassVar[str]

    id: str
    title: str
    intro: str = field(default="", kw_only=True)
    how: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Facts(Section):
    """A label and a text a line."""

    template: ClassVar[str] = "facts.html"

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Picture(Section):
    """A plot as SVG, once for wide and once for narrow screens; or what is `missing` to draw it."""

    template: ClassVar[str] = "picture.html"

    wide: str = ""
    narrow: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Table(Section):
    """Rows that can be sorted and searched.

    `noun` is what a row is, in the plural. `falling` is the column by which the rows are sorted as
    they stand, the largest first; `rising` likewise, the smallest first. `remarks` stand below.
    """

    template: ClassVar[str] = "table.html"

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    noun: str
    falling: str = field(default="", kw_only=True)
    rising: str = field(default="", kw_only=True)
    remarks: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Bar:
    """A name, its figure, and the length of its bar (0 to 1)."""

    name: str
    text: str
    length: float
    mark: str = ""


@dataclass(frozen=True)
class Bars(Section):
    """Figures as bars; the first `shown` of them stand open."""

    template: ClassVar[str] = "bars.html"

    bars: tuple[Bar, ...]
    shown: int = 15


@dataclass(frozen=True)
class Notes(Section):
    """Remarks, each with what it is about, if that takes words."""

    template: ClassVar[str] = "notes.html"

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Commands(Section):
    """What to do, and the command that does it, in order."""

    template: ClassVar[str] = "commands.html"

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Traces(Section):
    """Texts whose lines stand as they are, such as tracebacks; folded under their labels."""

    template: ClassVar[str] = "traces.html"

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Page:
    """A whole page; `data` is embedded as JSON, for checking.

    The heading's colour says whether the verdict is `good`, else `bad` or in between.

    `summary` is the verdict in one sentence, for whoever reads nothing else; `sentence` says more.
    """

    title: str
    subject: str
    heading: str
    sentence: str
    good: bool
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    data: Mapping[str, Any]
    summary: str = ""
    bad: bool = False


_SHORTEST = 0.04  # a bar that is there can be seen
_LEAST_DB = 10.0  # differences of less do not fill a bar


def latency(seconds: float | None) -> str:
    """Format seconds as `812 µs`, `4.20 ms` or `1.23 s`; nothing where there is no number."""
    return words.latency(seconds).replace(" us", " µs")


def share(x: float) -> float | None:
    """Return `x` as the length of a bar; None where it is no number."""
    return min(1.0, max(0.0, x)) if math.isfinite(x) else None


def sortable(x: float | int | None) -> float | int | None:
    """Return the number that a cell is sorted by: None where there is none, or NaN."""
    return None if x is None or math.isnan(x) else x


def bars(values: Iterable[float | int | None]) -> Callable[[float | int | None], float | None]:
    """Return a function from a value to its bar's length, 1 for the largest of `values`."""
    rated = [v for v in values if v is not None and 0 < v < math.inf]
    largest = max(rated, default=None)

    def length(value: float | int | None) -> float | None:
        if value is None or largest is None:
            return None
        return round(min(1.0, value / largest), 3)

    return length


def noise_bars(decibels: Iterable[float]) -> Callable[[float], float]:
    """Return a function from an SNR in dB to a bar's length: the less, the longer; 0: no noise."""
    rated = [x for x in decibels if math.isfinite(x)]
    low, high = min(rated, default=0.0), max(rated, default=0.0)
    span = max(high - low, _LEAST_DB)

    def length(x: float) -> float:
        if not math.isfinite(x):
            return 0.0 if x > 0 else 1.0
        return round(_SHORTEST + (1 - _SHORTEST) * min(1.0, 1 - (x - low) / span), 3)

    return length


def filled(
    columns: Sequence[Column], rows: Sequence[tuple[Cell, ...]]
) -> tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]:
    """Return the columns that hold something in some row, and the rows with these alone."""
    kept = [i for i in range(len(columns)) if any(row[i].text for row in rows)]
    return tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)
