"""Pages on a terminal, and a progress bar.

On a terminal a page is laid out to its width: long names fold, and nothing is cut off; a table that
is too wide even so has one row a line, which the terminal breaks. Anywhere else a page is plain.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from octavo.core.progress import is_watched, speaks_alone
from octavo.results import page
from octavo.results.page import Line, Part, plain_text

Progress = Callable[[str, int, int], None]

_UNBOUNDED = 1_000_000  # columns: wider than any line
_LEAST = 12  # columns of a text that folds, below which nobody can read it


def console(stderr: bool = False) -> Console:
    """Make a console for stdout or stderr, unstyled where NO_COLOR is set or no one looks."""
    watched = is_watched(sys.stderr if stderr else sys.stdout)
    styled = watched and not os.environ.get("NO_COLOR")
    return Console(
        stderr=stderr,
        force_terminal=watched,
        color_system="auto" if styled else None,
        highlight=False,
        markup=False,
    )


def show(result: page.Result, to: Console, verbose: bool = False) -> None:
    """Print the page of `result`, laid out for a terminal or plainly for anything else."""
    if not to.is_terminal:
        to.file.write(result.text(verbose) + "\n")
        return
    for part in result.page(verbose):
        drawn = rich_part(part)
        if isinstance(drawn, Table) and _needs(drawn, to) > to.width:
            to.print(Text(plain_text([part])), soft_wrap=True)
        else:
            to.print(drawn)


def rich_part(part: Part) -> RenderableType:
    """Convert a part of a page to what rich prints."""
    if isinstance(part, Line):
        return Text.assemble(*part.spans)
    return rich_table(part)


def rich_table(part: page.Table) -> Table:
    """Convert a page's table to a rich table without rules, whose figures never wrap."""
    table = Table(
        box=None,
        padding=(0, part.gap, 0, 0),
        header_style="dim",
        show_header=part.header,
        pad_edge=False,
    )
    for column in part.columns:
        table.add_column(
            Text(column.heading),
            justify="right" if column.right else "left",
            no_wrap=not column.fold,
            overflow="fold" if column.fold or part.header else "ellipsis",
            style=column.style,
        )
    for row in part.rows:
        table.add_row(*map(rich_part, row))
    return table


def _needs(table: Table, to: Console) -> int:
    """Return the width below which rich would cut figures or drop columns."""
    wide = to.options.update(width=_UNBOUNDED)
    total = 0
    for column in table.columns:
        widest = max(Measurement.get(to, wide, c).maximum for c in (column.header, *column.cells))
        total += widest if column.no_wrap else min(widest, _LEAST)
    return total + 2 * (len(table.columns) - 1)


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Yield a callback `(stage, done, total)` that draws a bar on stderr; clear the bar at the end.

    None where stderr is not a terminal, or another bar is shown. A `total` of 0 means that nobody
    knows the total.
    """
    if not is_watched(sys.stderr):
        yield None
        return
    with speaks_alone() as free:
        if not free:
            yield None
            return
        with _bar() as advance:
            yield advance


class _Done(rich_progress.MofNCompleteColumn):
    """`3/10`, and nothing where nobody knows of how many."""

    def render(self, task: rich_progress.Task) -> Text:
        """Return the count of one bar; an empty text where its total is not known."""
        return Text("") if task.total is None else super().render(task)


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        _Done(),
        rich_progress.TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def advance(stage: str, done: int, total: int) -> None:
            bar.tasks[0].total = total or None  # update() leaves it where it is given None
            bar.update(task, description=stage, completed=done)

        yield advance


@contextlib.contextmanager
def working(stage: str) -> Iterator[None]:
    """Show `progress_bar` around work that knows nothing of its progress.

    The bar says `stage`, and for how long. Only one may be shown at a time: what is inside has none
    of its own.
    """
    with progress_bar() as progress:
        if progress is not None:
            progress(stage, 0, 0)
        yield
