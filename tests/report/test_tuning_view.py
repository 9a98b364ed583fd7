"""A search while it runs: the live table, and plain lines where no one looks."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from octavo.report.tuning_view import TuningView
from octavo.results.tuning import Trial
from tests.report.tuning_samples import BASELINE, BEST, FAILED, MET, MISSED

CRITERION = "at most 1% of the float model's accuracy lost"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def terminal(width: int = 80, height: int = 24) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=True,
        color_system=None,
        highlight=False,
        _environ={"TERM": "xterm"},
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def started(console: Console, clock: Clock | None = None) -> TuningView:
    view = TuningView(console, clock or Clock())
    view.start(
        "model.onnx", CRITERION, "performance", "auto", 12, 100, 60.0, bound=0.01, relative=True
    )
    return view


def drawn(view: TuningView, width: int = 80) -> list[str]:
    page = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    page.print(view._draw())
    return written(page).splitlines()


def search(view: TuningView) -> None:
    view.doing("ranking 12 layers")
    view.baseline(BASELINE)
    view.ranked((("fc3", 0.21), ("fc1", 0.0123)), 13)
    for trial in (MISSED, BEST, MET, FAILED, replace(FAILED, index=5)):
        view.trial(trial, best=trial in (MISSED, BEST))
    view.note("latency is noisy")


def test_plain_lines_where_stderr_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    with started(console) as view:
        search(view)
    assert written(console) == (
        """\
tuning model.onnx: auto, objective performance, 12 layers; """
        """at most 1% of the float model's accuracy lost; at most 100 trials and 1 min 0 s
the float model: accuracy 0.915, 90.4 MB
ranked 2 layers with 13 model runs; the most sensitive: fc3 0.21, fc1 0.012
trial 1: int8, all 12 layers: accuracy 0.8312, loss 9.16%, 4.05 ms, 2.00x as fast, 22.5 MB, """
        """nearest so far
trial 2: int8, 1 of 12 layers float: fc3: accuracy 0.912, loss 0.328%, 4.21 ms, 1.92x as fast, """
        """23.1 MB, best so far
trial 3: int8, 2 of 12 layers float: fc3, fc1: accuracy 0.9131, loss 0.208%, 5.10 ms, """
        """1.59x as fast, 25.1 MB, met
trial 4: int8, fc3 in blocks of 32: failed: ValueError: no labels
trial 4 failed:
  Traceback (most recent call last):
    File "score.py", line 3, in evaluate
      raise ValueError("no labels")
  ValueError: no labels
trial 5: int8, fc3 in blocks of 32: failed: ValueError: no labels
note: latency is noisy
"""
    )


def test_a_trials_line_has_the_float_time_that_its_ratio_is_of() -> None:
    console = Console(file=io.StringIO(), width=80)
    with TuningView(console) as view:
        view.baseline(replace(BASELINE, latency=0.6))
        view.trial(replace(BEST, latency=0.486, float_latency=0.814, time_ratio=0.6), best=True)
    first, second = written(console).splitlines()
    assert "600" not in first
    assert ", 814 ms -> 488 ms, 1.67x as fast, " in second


def test_each_plain_line_is_flushed_as_the_trial_ends() -> None:
    class Stream(io.StringIO):
        flushed = ""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    stream = Stream()
    with started(Console(file=stream)) as view:
        view.trial(MISSED, best=True)
        assert stream.flushed.endswith("nearest so far\n")


def test_by_default_it_writes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with TuningView() as view:
        view.note("hello")
    assert capsys.readouterr() == ("", "note: hello\n")


def test_the_live_table() -> None:
    clock = Clock()
    view = started(terminal(), clock)
    search(view)
    view.doing("trial 6: evaluating")
    clock.now += 12.9
    lines = drawn(view)
    assert lines[0].startswith("tuning model.onnx: auto, objective performance, 12 layers; at mo")
    assert lines[1].startswith("ranked 2 layers with 13 model runs; the most sensitive: fc3 0.21")
    assert lines[2].split() == "trial recipe accuracy loss latency time size result".split()
    assert [line.split()[0] for line in lines[3:9]] == ["float", "1", "2", "3", "4", "5"]
    assert lines[5].split()[-8:] == "0.912 0.328% 4.21 ms 0.52 23.1 MB best".split()
    assert lines[7].split()[-1] == "failed"
    assert lines[9:] == [
        "trial 6: evaluating",
        "elapsed 0:12, 5 of at most 100 trials, 0:47 left",
    ]


def test_without_a_deadline_no_time_is_left() -> None:
    view = TuningView(terminal(), Clock())
    view.start("m.onnx", CRITERION, "modelsize", "tpe", 3, 5, None)
    assert drawn(view)[-1] == "elapsed 0:00, 0 of at most 5 trials"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 12), (120, 50), (60, 24)])
def test_two_hundred_trials_fit_the_terminal(width: int, height: int) -> None:
    view = started(terminal(width, height))
    view.baseline(BASELINE)
    view.ranked((("/a" * 100, 0.2),), 1)
    trials = [replace(MISSED, index=i, words="int8: " + "/layer" * 40) for i in range(1, 201)]
    view._trials = (trials[0], BEST, *trials[2:])
    view._best = 2
    lines = drawn(view, width)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    shown = [int(found[0]) for line in lines if (found := re.findall(r"^ +(\d+)  ", line))]
    assert shown[0] == 2
    assert shown[1:] == list(range(201 - len(shown[1:]), 201))
    assert len(shown) == 1 + min(12, height - 9)
    assert f"and {200 - len(shown)} earlier trials" in lines
    last = next(line for line in lines if line.startswith("  200  "))
    figures = "9.16%  4.05 ms  0.50  22.5 MB" if width >= 80 else "9.16%  0.50  22.5 MB"
    assert last.rstrip().endswith(f"{figures}  missed")


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_terminal_is_left_as_it_was(interrupted: bool) -> None:
    console = terminal()
    with contextlib.suppress(KeyboardInterrupt), started(console) as view:
        search(view)
        if interrupted:
            raise KeyboardInterrupt
    text = written(console)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is shown
    after = text[text.rindex("left\n") + 5 :]
    assert re.sub(r"\x1b\[[?\d]*[a-zA-Z]|\r", "", after) == ""  # the table is taken away


def test_a_traceback_stands_above_the_table_once() -> None:
    console = terminal()
    with started(console) as view:
        view.baseline(BASELINE)
        for index in range(1, 6):
            view.trial(replace(FAILED, index=index), best=False)
    assert written(console).count('raise ValueError("no labels")') == 1


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines() -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system=None, _environ={"TERM": "dumb"}
    )
    with started(console) as view:
        view.trial(BEST, best=True)
    assert "\x1b" not in written(console)
    assert "trial 2: " in written(console)


def test_names_cannot_write_escape_codes() -> None:
    bad = "\x1b[31m\r[bold]"
    hostile: Trial = replace(BEST, words=bad, error=f"ValueError: {bad}")
    console = Console(file=io.StringIO())
    view = TuningView(console, Clock())
    with view:
        view.start(bad, bad, bad, bad, 1, 1, None)
        view.ranked(((bad, 1.0),), 1)
        view.trial(hostile, best=False)
        view.note(bad)
        view.doing(bad)
    assert not any(c != "\n" and not c.isprintable() for c in written(console))
    assert not any(c != "\n" and not c.isprintable() for c in "\n".join(drawn(view)))
