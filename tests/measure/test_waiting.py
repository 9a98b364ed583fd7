"""Runs that waited for a processor are left out, and where most did no speed is told."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import octavo.measure
from octavo.measure import waiting
from octavo.measure.benchmark import compare
from octavo.measure.timing import interleave
from octavo.results.benchmark import BUSY
from tests.measure.noisy_machine import Machine


def test_all_threads_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_TASKS", tmp_path)
    monkeypatch.setattr(waiting, "_switched", lambda: 5)
    monkeypatch.setattr("os.getpid", lambda: 12)
    assert real_waited() == pytest.approx(5 * waiting.SLICE)  # a system without such files
    for thread, waits in ((12, 3_000_000), (13, 4_000_000)):
        (tmp_path / str(thread)).mkdir()
        (tmp_path / str(thread) / "schedstat").write_text(f"9999999 {waits} 17\n")
    (tmp_path / "14").mkdir()  # one that has just ended
    assert real_waited() == pytest.approx(0.007)


@pytest.mark.parametrize("calls", [(0.002, 0.002), (0.001, 0.04)], ids=["alike", "short and long"])
def test_runs_that_waited_are_left_out(calls: tuple[float, float]) -> None:
    """A long call is disturbed far more often than a short one."""
    machine = Machine(0, placed=0, jitter=0, drift=0, spikes=0.003, told=True)
    a, b = (machine.opener(seconds) for seconds in calls)
    (pair,), _ = compare({"a": a, "b": b}, seconds=10, clock=machine.clock)
    assert machine.waited > 0.05
    assert pair.low == pytest.approx(calls[1] / calls[0]) == pair.high


@pytest.mark.parametrize("call", [0.0001, 0.002, 0.3])
def test_where_most_waited_nothing_is_told(call: float) -> None:
    machine = Machine(0, spikes=0.5, told=True)
    openers = {"a": machine.opener(call), "b": machine.opener(call)}
    assert compare(openers, seconds=10, clock=machine.clock) == ((), ())
    assert machine.now < 30


def rounds(waits: Iterator[float]) -> octavo.measure.timing.Comparison:
    return interleave({"a": int, "b": int}, rounds=8, waits=lambda: next(waits))


def test_rounds_that_waited_are_left_out() -> None:
    # Eight rounds of two calls, asked before and after each: one second in the third and the fifth.
    asked = [0.0] * 9 + [1.0] * 8 + [2.0] * 15
    found = rounds(iter(asked))
    assert not found.busy and len(found["a"].seconds) == len(found["b"].seconds) == 6
    found = rounds(itertools.count())
    assert found.busy and len(found["a"].seconds) == 8


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is waited between any two looks."""
    monkeypatch.setattr(waiting, "waited", itertools.count().__next__)


@pytest.mark.usefixtures("busy")
def test_a_busy_machine_has_no_factors() -> None:
    found = octavo.measure.bench({"a": int, "b": str}, seconds=0.5)
    assert (found.rows, found.models, found.notes) == ((), (), (BUSY,))
    assert BUSY in str(found) and " as fast" not in str(found)


real_waited = waiting.waited
BUSY_LOOP = "while True: pass"


@pytest.mark.real_time
def test_beside_eight_busy_processes_nothing_wrong_is_told() -> None:
    """The interval has the ratio of processor time, 100 to 1, or there is none."""

    def spin(seconds: float) -> Callable[[], object]:
        steps = round(seconds / per_step)
        return lambda: sum(range(steps))

    start = time.process_time()
    sum(range(10**7))
    per_step = (time.process_time() - start) / 10**7
    busy = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(8)]
    try:
        found = octavo.measure.bench({"a": spin(0.0005), "b": spin(0.05)}, seconds=10)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert all(row.low / 1.1 < 100 < row.high * 1.1 for row in found.rows)
    assert found.rows or found.notes == (BUSY,)
