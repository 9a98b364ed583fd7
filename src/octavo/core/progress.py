"""What a call that takes a while is at, on a terminal: who calls from Python waits too.

quantizing 12 of 37, 4 s
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

Progress = Callable[[str, int, int], None]
"""Called with a stage, what is done of it and how much there is; 0 where nobody knows."""

Call = TypeVar("Call", bound=Callable[..., Any])

_PATIENCE = 2.0  # seconds before anything is said
_EVERY = 0.25  # seconds between two drawings
_one_at_a_time = threading.Lock()


def quiet(stage: str, done: int, total: int) -> None:
    """The progress that nobody looks at."""


def says_progress(call: Call) -> Call:
    """Gives `call`, where its `progress` is None, one that a terminal's stderr shows.

    Nothing is said in the first two seconds, nor where stderr is no terminal; the line is gone when
    the call ends. Of calls inside of each other the outer one speaks.
    """

    @functools.wraps(call)
    def speaking(*arguments: Any, progress: Progress | None = None, **options: Any) -> Any:
        if progress is not None:
            return call(*arguments, progress=progress, **options)
        with shown(call.__name__) as found:
            return call(*arguments, progress=found, **options)

    return cast("Call", speaking)


@contextlib.contextmanager
def shown(stage: str) -> Iterator[Progress]:
    """A progress that is shown where somebody looks; it begins with `stage`."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or not _one_at_a_time.acquire(blocking=False):
        yield quiet
        return
    try:
        line = _Line(stream, stage)
        with line:
            yield line.advance
    finally:
        _one_at_a_time.release()


class _Line:
    """One line of a terminal, drawn by a thread of its own: stages may take minutes."""

    def __init__(self, stream: Any, stage: str) -> None:
        self._stream, self._stage = stream, stage
        self._began = time.monotonic()
        self._drawn = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octavo progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def advance(self, stage: str, done: int, total: int) -> None:
        """Says it at the next drawing."""
        self._stage = f"{stage} {done:,} of {total:,}" if total > 1 else stage

    def _run(self) -> None:
        wait = _PATIENCE
        while not self._over.wait(wait):
            wait = _EVERY
            self._write(f"\r\x1b[K{self._stage}, {time.monotonic() - self._began:.0f} s")
            self._drawn = True
        if self._drawn:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or closed
            self._stream.write(text)
            self._stream.flush()
