"""A page of text, laid out by whoever shows it: plainly here, for terminals by `octavo.report`.

Plain text has no escape codes, and one row a line however long, so that grep finds names.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeAlias

from octavo.core.data import Data


@dataclass(frozen=True)
class Line:
    """A line of text, or a few: (text, style) pairs. Styles are for terminals."""

    spans: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "".join(text for text, _ in self.spans)


@dataclass(frozen=True)
class Column:
    """A column of a table: figures stand to the right, and never fold."""

    heading: str = ""
    right: bool = False
    fold: bool = True
    style: str = ""


@dataclass
class Table:
    """Rows of cells, `gap` spaces between them; `header` says whether the headings are shown."""

    columns: Sequence[Column]
    gap: int = 2
    header: bool = True
    rows: list[tuple[Part, ...]] = field(default_factory=list)

    def add_row(self, *cells: str | Part) -> None:
        """Add a row below the others."""
        self.rows.append(tuple(line(c) if isinstance(c, str) else c for c in cells))


Part: TypeAlias = Line | Table
Page: TypeAlias = Iterable[Part]


class Result(Data):
    """Data that can say itself as a page."""

    def page(self, verbose: bool = False) -> Page:
        """Yield the parts of the page; `verbose` names every layer."""
        raise NotImplementedError

    def text(self, verbose: bool = False) -> str:
        """Return the page as plain text; `verbose` names every layer."""
        return plain_text(self.page(verbose))

    def __str__(self) -> str:
        return self.text()


def line(*parts: str | tuple[str, str], style: str = "") -> Line:
    """Text, or texts with a style each."""
    return Line(tuple((p, style) if isinstance(p, str) else p for p in parts))


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Make a table of a label and a text a line; a text that is too long goes on below itself."""
    table = Table((Column(fold=False, style="dim"), Column()), header=False)
    for row in rows:
        table.add_row(*row)
    return table


def indented(text: str | Line, by: int = 2, bullet: str = "") -> Table:
    """Make a paragraph whose lines all start `by` columns in, the first with `bullet`."""
    table = Table((Column(fold=False), Column()), gap=0, header=False)
    table.add_row(f"{bullet:>{by - 1}} ", text)
    return table


def columns(*headings: str, right: Sequence[str] = ()) -> Table:
    """Make an empty table; the columns named in `right` hold figures."""
    return Table([Column(h, h in right, fold=h not in right) for h in headings])


def noted(notes: Sequence[str]) -> Iterator[Part]:
    """Remarks under a heading; nothing where there are none."""
    if notes:
        yield line("Notes", style="bold")
        yield from (indented(note, 4, "-") for note in notes)


def plain_text(page: Page) -> str:
    """Return the page as text: no escape codes, nothing folded, no spaces at the ends of lines."""
    lines = [text for part in page for text in plain_lines(part)]
    return "\n".join(text.rstrip() for text in "\n".join(lines).rstrip().splitlines())


def plain_lines(part: Part) -> Iterator[str]:
    """Yield the lines of a part of a page."""
    if isinstance(part, Line):
        yield from str(part).split("\n")
        return
    heads = [tuple(line(c.heading) for c in part.columns)] if part.header else []
    rows = [[list(plain_lines(cell)) for cell in row] for row in (*heads, *part.rows)]
    widths = [
        max(width(text) for texts in cells for text in texts) for cells in zip(*rows, strict=True)
    ]
    for row in rows:
        for texts in zip_longest(*row, fillvalue=""):
            cells = zip(texts, widths, part.columns, strict=True)
            yield (" " * part.gap).join(_padded(text, to, c.right) for text, to, c in cells)


def _padded(text: str, to: int, right: bool) -> str:
    room = " " * (to - width(text))
    return room + text if right else text + room


def width(text: str) -> int:
    """Count the columns of a terminal that `text` takes: two for a character of East Asia."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)
