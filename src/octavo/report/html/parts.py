"""What a page is made of. Texts are plain: whatever draws them escapes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from octavo.report.html.plot import Plot


@dataclass(frozen=True)
class Tile:
    """One large figure; `share` (0 to 1, of the float model's) is drawn as a bar."""

    label: str
    value: str
    detail: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Cell:
    """A table's cell; `value` is the number that it is sorted by (None: by its text).

    `tone` is one of good, warn, bad and dim.
    """

    text: str
    value: float | int | None = None
    tone: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; `template` draws it."""

    template: ClassVar[str]

    id: str
    title: str
    intro: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Facts(Section):
    """A label and a text a line."""

    template: ClassVar[str] = "facts.html"

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Picture(Section):
    """A plot, once for wide and once for narrow screens."""

    template: ClassVar[str] = "picture.html"

    wide: Plot
    narrow: Plot


@dataclass(frozen=True)
class Table(Section):
    """Rows that can be sorted and searched.

    `columns` are (heading, whether it holds figures) pairs, `noun` what a row is, in the plural.
    """

    template: ClassVar[str] = "table.html"

    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]
    noun: str


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
class Traces(Section):
    """Texts whose lines stand as they are, such as tracebacks; folded under their labels."""

    template: ClassVar[str] = "traces.html"

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Page:
    """A whole page. `good` colours the verdict; `data` is embedded as JSON, for checking."""

    title: str
    subject: str
    heading: str
    sentence: str
    good: bool
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    data: Mapping[str, Any]
