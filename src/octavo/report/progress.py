"""A progress bar on stderr, where someone looks at it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Progress = Callable[[str, int, int], None]


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A callback `(stage, done, total)` that draws a bar, and takes it away at the end.

    None where stderr is not a terminal. A total of 0 means that nobody knows.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich_progress

    from octavo.report.text import console

    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def advance(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total or None)

        yield advance
