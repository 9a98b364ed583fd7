"""What a call that takes a while is at, on a terminal: who calls from Python waits too.

quantizing 12 of 37, 4 s
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

Progress = Callable[[str, int, int], None]
"""Called with a stage, what is done of it and how much there is; 0 where nobody knows."""

Call = TypeVar("Call", bound=Callable[..., Any])

_PATIENCE = 2.0  # seconds before anything is said
_EVERY = 0.25  # seconds between two drawings
_CLEAR = "\r\x1b[K"
_one_at_a_time = threading.Lock()


def _free() -> None:
    """Make a new lock in a child of a fork: the thread that draws stayed in its parent."""
    global _one_at_a_time  # noqa: PLW0603
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)


def quiet(stage: str, done: int, total: int) -> None:
    """Ignore the progress: nobody looks at it."""


def says_progress(call: Call) -> Call:
    """Give `call`, where its `progress` is None, one that a terminal's stderr shows.

    Nothing is said in the first two seconds, nor where stderr is no terminal; the line is gone when
    the call ends. Of calls inside of each other, or in several threads, the first one speaks.
    """

    @functools.wraps(call)
    def speaking(*arguments: Any, progress: Progress | None = None, **options: Any) -> Any:
        if progress is not None:
            return call(*arguments, progress=progress, **options)
        with shown(call.__name__) as found:
            return call(*arguments, progress=found, **options)

    return cast("Call", speaking)


def is_watched(stream: Any) -> bool:
    """Tell whether `stream` is an open terminal; what a program put in stderr's place is none."""
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001 - None, closed, or an object of somebody else's
        return False


@contextlib.contextmanager
def speaks_alone() -> Iterator[bool]:
    """Tell whether nobody else draws on the terminal; meanwhile nobody else will."""
    lock = _one_at_a_time
    free = lock.acquire(blocking=False)
    try:
        yield free
    finally:
        if free:
            lock.release()


@contextlib.contextmanager
def shown(stage: str) -> Iterator[Progress]:
    """Yield a progress that is shown where somebody looks; its line begins with `stage`."""
    _unwrap("stderr")
    stream = sys.stderr
    if not is_watched(stream):
        yield quiet
        return
    with speaks_alone() as free:
        if not free:
            yield quiet
            return
        line = _Line(stream, stage)
        with line:
            yield line.advance


def _unwrap(name: str) -> None:
    """Remove from stream `name` of `sys` what progress lines that are gone have left there.

    Somebody who redirects a stream meanwhile, in another thread, puts it back later.
    """
    while isinstance(stream := getattr(sys, name, None), _Beside) and stream.passes:
        setattr(sys, name, stream.stream)


class _Line:
    """One line of a terminal, drawn by a thread of its own: stages may take minutes.

    While it stands there, what others write to stdout and stderr takes its place.
    """

    def __init__(self, stream: Any, stage: str) -> None:
        self._stream, self._stage = stream, stage
        self._began = time.monotonic()
        self._drawn = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octavo progress", daemon=True)
        self._replaced: list[tuple[str, _Beside]] = []
        self.lock = threading.RLock()
        self.over = False
        """Whether it is gone: others' streams may still lead here, and pass on what they get."""
        self.in_the_way = False
        """Whether somebody else's line is not at its end yet."""

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self.over = True
        for name, _ in self._replaced:
            _unwrap(name)

    def advance(self, stage: str, done: int, total: int) -> None:
        """Set the stage and how much of it is done, for the next drawing to show."""
        self._stage = f"{stage} {done:,} of {total:,}" if total > 1 else stage

    def clear(self) -> None:
        """Take the line away until the next drawing."""
        if self._drawn:
            self._write(_CLEAR)
            self._drawn = False

    def _run(self) -> None:
        wait = _PATIENCE
        while not self._over.wait(wait):
            if not self._replaced:
                self._stand_beside()
            wait = _EVERY
            with self.lock:
                if not self.in_the_way:
                    self._drawn = True
                    seconds = time.monotonic() - self._began
                    self._write(f"{_CLEAR}{self._stage}, {seconds:.0f} s")
        with self.lock:
            self.clear()

    def _stand_beside(self) -> None:
        for name in ("stderr", "stdout"):
            _unwrap(name)
            stream = getattr(sys, name, None)
            if stream is self._stream or (name == "stdout" and is_watched(stream)):
                beside = _Beside(stream, self)
                setattr(sys, name, beside)
                self._replaced.append((name, beside))

    def _write(self, text: str) -> None:
        with contextlib.suppress(Exception):  # the terminal is gone, closed, or a strange one
            self._stream.write(text)
            self._stream.flush()


class _Beside:
    """A stream that shares its terminal with a line: the line goes before a text comes."""

    def __init__(self, stream: Any, line: _Line) -> None:
        self.stream, self._line, self._process = stream, line, os.getpid()

    @property
    def passes(self) -> bool:
        """Tell whether no line stands there: it is gone, or was its parent's, before a fork."""
        return self._line.over or os.getpid() != self._process

    def write(self, text: str) -> Any:
        """Write `text` to the stream, as the stream's own `write` does."""
        if self.passes:  # in a child, nobody would ever release the lock
            return self.stream.write(text)
        with self._line.lock:
            self._line.clear()
            written = self.stream.write(text)
            if text:
                self._line.in_the_way = not text.endswith("\n")
        return written

    def writelines(self, texts: Iterable[str]) -> None:
        """Write `texts` to the stream, as the stream's own `writelines` does."""
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
