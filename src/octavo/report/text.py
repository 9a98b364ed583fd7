"""Words and layout that the reports share.

On a terminal a page is laid out to its width: long names fold, and nothing is cut off; a table that
is too wide even so has one row a line, which the terminal breaks. Anywhere else a page is plain
text without escape codes, one row a line however long, so that grep finds names.
"""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_UNBOUNDED = 1_000_000  # columns: wider than any line
_LEAST = 12  # columns of a text that folds, below which nobody can read it


def clean(text: object) -> str:
    """`text` with control characters written as escapes: names come out of files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def size(n: int) -> str:
    """Bytes in decimal units: `812 B`, `4.1 kB`, `90.4 MB`, `1.23 GB`."""
    if n < 1000:
        return f"{n} B"
    for unit, scale, digits in (("kB", 1e3, 1), ("MB", 1e6, 1), ("GB", 1e9, 2)):
        if round(n / scale, digits) < 1000 or unit == "GB":
            return f"{n / scale:.{digits}f} {unit}"
    raise AssertionError("unreachable: GB takes what is left")


def amount(n: int) -> str:
    """A large number in three digits: `812`, `4.1 k`, `590 k`, `1.21 M`, `14.2 G`."""
    for unit, scale in (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        value = n / scale
        if round(value) < 1000 or unit == "T":
            digits = 0 if scale == 1 else 2 if value < 10 else 1 if value < 100 else 0
            return f"{value:.{digits}f} {unit}".rstrip()
    raise AssertionError("unreachable: T takes what is left")


def ratio(before: int, after: int) -> str:
    """`3.9x smaller`, `1.2x larger` or `the same size`."""
    if before == after or not before or not after:
        return "the same size" if before == after else f"{size(before)} to {size(after)}"
    word = "smaller" if after < before else "larger"
    return f"{max(before, after) / min(before, after):.1f}x {word}"


def number(x: float) -> str:
    """Two significant digits."""
    return f"{x:.2g}"


def duration(seconds: float) -> str:
    """`31 ms`, `1.2 s`, `2 min 5 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def decibels(x: float | None) -> str:
    """`41.2 dB`; `exact` without noise, nothing where there is no number."""
    if x is None:
        return ""
    return "exact" if x == float("inf") else f"{x:.1f} dB"


def count(n: int, noun: str) -> str:
    """`1 layer`, `36 layers`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def counts(items: Iterable[str]) -> str:
    """`12 MatMul, 1 Gemm`, in the order of the first of each."""
    return ", ".join(f"{n:,} {clean(item)}" for item, n in Counter(items).items())


def names(items: Sequence[str], limit: int | None = 3) -> str:
    """The first `limit` names and how many more there are; None names all."""
    shown = [clean(item) or "(no name)" for item in items[:limit]]
    more = len(items) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def shapes(weights: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """`384x1536`, one for each weight."""
    return ", ".join("x".join(map(str, shape)) or "scalar" for _, shape in weights)


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """A label and a text a line; a text that is too long goes on below itself."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(Text(label), Text(text))
    return grid


def indented(text: str | Text, by: int = 2, bullet: str = "") -> Table:
    """A paragraph whose lines all start `by` columns in, the first with `bullet`."""
    grid = Table.grid()
    grid.add_column(width=by, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(bullet.rjust(by - 1)), text if isinstance(text, Text) else Text(text))
    return grid


def columns(*headings: str, right: Sequence[str] = ()) -> Table:
    """An empty table without rules; the columns named in `right` hold figures and never wrap."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in headings:
        figures = heading in right
        table.add_column(
            Text(heading),
            justify="right" if figures else "left",
            no_wrap=figures,
            overflow="fold",
        )
    return table


def console(stderr: bool = False) -> Console:
    """A console for stdout or stderr that styles nothing where NO_COLOR is set or no one looks."""
    watched = (sys.stderr if stderr else sys.stdout).isatty()
    styled = watched and not os.environ.get("NO_COLOR")
    return Console(
        stderr=stderr,
        force_terminal=watched,
        color_system="auto" if styled else None,
        highlight=False,
        markup=False,
    )


def plain(page: Sequence[RenderableType]) -> str:
    """`page` as text: no escape codes, nothing folded, no spaces at the ends of lines."""
    stream = io.StringIO()
    wide = Console(
        file=stream,
        width=_UNBOUNDED,
        color_system=None,
        force_terminal=False,
        highlight=False,
        markup=False,
    )
    for part in page:
        wide.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())


def show(page: Sequence[RenderableType], to: Console) -> None:
    """Prints `page`, laid out for a terminal or plainly for anything else."""
    if not to.is_terminal:
        to.file.write(plain(page) + "\n")
        return
    for part in page:
        if isinstance(part, Table) and _needs(part, to) > to.width:
            to.print(Text(plain([part])), soft_wrap=True)
        else:
            to.print(part)


def _needs(table: Table, to: Console) -> int:
    """The width below which rich would cut figures or drop columns."""
    wide = to.options.update(width=_UNBOUNDED)
    total = 0
    for column in table.columns:
        cells = (column.header, *column.cells)
        widest = max(Measurement.get(to, wide, cell).maximum for cell in cells)
        total += widest if column.no_wrap else min(widest, _LEAST)
    return total + 2 * (len(table.columns) - 1)
