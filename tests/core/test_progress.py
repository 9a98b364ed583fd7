"""What calls say on a terminal while they run, and that they say nothing elsewhere."""

from __future__ import annotations

import inspect
import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from octavo import onnx, torch
from octavo.core import progress
from octavo.core import progress as module
from octavo.core.progress import Progress, quiet, says_progress
from octavo.report.terminal import progress_bar
from octavo.torch import hub


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In which nobody has patience."""
    made = Terminal()
    # pytest puts sys.stderr back before the test begins.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setattr(progress, "_PATIENCE", 0.05)
    monkeypatch.setattr(progress, "_EVERY", 0.02)
    return made


@says_progress
def work(seconds: float, *, progress: Progress | None = None) -> Progress:
    assert progress is not None
    progress("reading", 0, 1)
    progress("quantizing", 3, 1200)
    time.sleep(seconds)
    return progress


def test_a_long_call_says_what_it_is_at_and_cleans_up(terminal: Terminal) -> None:
    work(0.2)
    said = terminal.getvalue()
    assert "\r\x1b[Kquantizing 3 of 1,200, 0 s" in said
    assert said.endswith("\r\x1b[K")
    assert "\n" not in said


def test_a_short_call_and_one_without_a_terminal_say_nothing(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(0)
    assert terminal.getvalue() == ""
    for elsewhere in (io.StringIO(), None):
        monkeypatch.setattr(progress.sys, "stderr", elsewhere)
        assert work(0) is quiet


def test_a_progress_that_is_given_is_the_only_one(terminal: Terminal) -> None:
    told: list[tuple[str, int, int]] = []
    work(0.2, progress=lambda *what: told.append(what))
    assert told == [("reading", 0, 1), ("quantizing", 3, 1200)]
    assert terminal.getvalue() == ""


def test_of_nested_calls_the_outer_one_speaks(terminal: Terminal) -> None:
    @says_progress
    def outer(*, progress: Progress | None = None) -> Progress:
        assert progress is not None
        progress("outer", 0, 0)
        return work(0.2)

    assert outer() is quiet
    assert "outer" in terminal.getvalue()
    assert "quantizing" not in terminal.getvalue()


@pytest.mark.parametrize("call", [torch.inspect, torch.compare, onnx.inspect])
def test_calls_without_a_progress_of_their_own_say_what_they_are_at(
    call: Callable[..., Any], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, **__: Any) -> None:
        time.sleep(0.2)
        raise ValueError("enough")

    module = sys.modules[call.__module__]
    for name in ("check_float", "compare_calls", "parse_request"):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, slow)
    with pytest.raises(ValueError, match="enough"):
        call(1, 2)
    assert "ing, 0 s" in terminal.getvalue()


class Closed(io.StringIO):
    def isatty(self) -> bool:
        raise ValueError("I/O operation on closed file")


class Broken(Terminal):
    def write(self, text: str) -> int:
        raise RuntimeError("gone")


def test_a_strange_stderr_stops_nothing(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream, speaks in ((None, False), (object(), False), (Closed(), False), (Broken(), True)):
        monkeypatch.setattr(progress.sys, "stderr", stream)
        assert (work(0.1) is not quiet) is speaks
        assert progress.sys.stderr is stream


def test_what_others_print_meanwhile_stands_on_lines_of_its_own(terminal: Terminal) -> None:
    before = progress.sys.stderr

    @says_progress
    def warns(*, progress: Progress | None = None) -> None:
        time.sleep(0.12)
        module.sys.stderr.write("UserWarning: careful\n")
        time.sleep(0.12)
        module.sys.stderr.write("50%")  # a bar of somebody else's
        time.sleep(0.12)
        module.sys.stderr.writelines([" 100%", "\n"])
        time.sleep(0.12)

    warns()
    assert progress.sys.stderr is before
    lines = terminal.getvalue().split("\n")
    shown = [line.rpartition("\r\x1b[K")[2] for line in lines]
    assert shown == ["UserWarning: careful", "50% 100%", ""]
    assert all("warns, 0 s" in line for line in lines)


def test_a_stream_that_somebody_puts_back_later_passes_all_on(terminal: Terminal) -> None:
    """As another thread's redirect_stderr does that begins within a call and ends after it."""
    kept = []

    @says_progress
    def meanwhile(*, progress: Progress | None = None) -> None:
        time.sleep(0.12)
        kept.append(module.sys.stderr)

    for _ in range(3):
        meanwhile()
        module.sys.stderr = kept[-1]
    assert module.sys.stderr is not terminal
    assert all(one.stream is terminal for one in kept)  # no chain
    before = terminal.getvalue()
    module.sys.stderr.write("50%")
    assert terminal.getvalue() == f"{before}50%"
    work(0)
    assert module.sys.stderr is terminal


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_writes_though_a_line_was_being_drawn(terminal: Terminal) -> None:
    @says_progress
    def forks(*, progress: Progress | None = None) -> None:
        time.sleep(0.12)
        beside: Any = module.sys.stderr
        over = threading.Event()

        def draw() -> None:
            with beside._line.lock:
                over.wait(10)

        drawing = threading.Thread(target=draw)
        drawing.start()
        time.sleep(0.05)
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            beside.write("from the child")
            os._exit(0 if module._one_at_a_time.acquire(blocking=False) else 3)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        over.set()
        drawing.join()

    statuses: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        forks()
    assert statuses == [0]


def test_of_several_threads_one_speaks(terminal: Terminal) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, [0.2] * 4))
    assert sum(one is not quiet for one in found) == 1
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_bar_of_the_command_line_is_the_only_one(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar() as bar:
        assert bar is not None
        assert work(0) is quiet
        with progress_bar() as inner:
            assert inner is None
    assert work(0) is not quiet


def test_a_bar_counts_what_is_known_alone(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def drawn(bar: Progress, *told: Any) -> str:
        bar(*told)
        terminal.truncate(terminal.seek(0))
        time.sleep(0.15)  # it draws ten times a second
        return terminal.getvalue()

    with progress_bar() as bar:
        assert bar is not None
        assert "/" not in drawn(bar, "reading", 0, 0)
        assert "3/10" in drawn(bar, "timing", 3, 10)
        assert "/" not in drawn(bar, "memory", 0, 0)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_no_line(terminal: Terminal, error: type[BaseException]) -> None:
    @says_progress
    def broken(*, progress: Progress | None = None) -> None:
        time.sleep(0.2)
        raise error

    with pytest.raises(error):
        broken()
    assert "broken, 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    work(0.2)  # and the next call speaks again
    assert "quantizing" in terminal.getvalue()


@pytest.mark.parametrize(
    "call",
    [
        *(onnx.quantize_dynamic, onnx.convert_target, onnx.compare),
        *(torch.quantize_dynamic, torch.save, hub.export),
    ],
    ids=lambda call: f"{call.__module__}.{call.__name__}",
)
def test_calls_of_users_say_it_by_default(call: Callable[..., Any]) -> None:
    assert inspect.signature(call).parameters["progress"].default is None
    assert call.__wrapped__ is not call  # type: ignore[attr-defined]
