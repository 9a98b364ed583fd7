"""Measurements for which the machine gave fewer cores than threads are made again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from benchmarks import cores, ours, rows
from benchmarks.runner import Answer
from octavo.measure.timing import Comparison, Timing

pytestmark = pytest.mark.slow

FULL, HALF = 2.0, 1.02  # of one thread's speed, on two


class Machine:
    """Gives as many cores as `speeds` says, one at a time, and counts what is measured on it."""

    def __init__(self, speeds: list[float]) -> None:
        self.speeds, self.measured = iter(speeds), 0

    def peak_gops(self, isa: str, seconds: float, threads: int) -> float:
        return 500.0 * (next(self.speeds) if threads > 1 else 1)

    def measure(self) -> Comparison:
        self.measured += 1
        return Comparison({"call": Timing((float(self.measured),), (1.0,))})


@pytest.fixture(autouse=True)
def shortage(monkeypatch: pytest.MonkeyPatch) -> Iterator[cores.Shortage]:
    found = cores.Shortage()
    monkeypatch.setattr(cores, "SHORTAGE", found)
    monkeypatch.setattr(cores, "idle", lambda: None)
    monkeypatch.setattr(cores, "PAUSE", 0.0)
    monkeypatch.setattr(cores, "MOST_IN_VAIN", 5.0)
    monkeypatch.setattr(cores, "clock", itertools.count().__next__)  # a second a look
    monkeypatch.setattr(ours, "isa", lambda: "avx512vnni")
    yield found


@pytest.mark.parametrize(
    ("speeds", "kept"),
    [
        ([FULL, FULL], 1),
        ([HALF, HALF, FULL, FULL], 1),  # nothing is measured while they are short
        ([FULL, HALF, FULL, FULL], 2),  # short after the first
        ([FULL, HALF, HALF, FULL, 1.91], 2),
    ],
)
def test_a_measurement_counts_with_all_cores_before_it_and_after(
    monkeypatch: pytest.MonkeyPatch, shortage: cores.Shortage, speeds: list[float], kept: int
) -> None:
    machine = Machine(speeds)
    monkeypatch.setattr(ours, "peak_gops", machine.peak_gops)
    assert cores.measured(machine.measure, threads=2)["call"].seconds == (kept,)
    assert (shortage.again, shortage.short) == (kept - 1, 0)
    assert not list(machine.speeds)


def test_a_machine_that_never_gives_them_is_a_missed_figure(
    monkeypatch: pytest.MonkeyPatch, shortage: cores.Shortage
) -> None:
    machine = Machine([FULL, HALF, HALF, HALF, HALF, HALF])
    monkeypatch.setattr(ours, "peak_gops", machine.peak_gops)
    assert cores.measured(machine.measure, threads=2)["call"].seconds == (2,)
    assert (shortage.again, shortage.short) == (1, 1)
    assert cores.measured(machine.measure, threads=2)["call"].seconds == (3,)  # it asks no more
    assert (shortage.short, shortage.in_vain) == (2, 5.0)
    answer = Answer("avx512vnni", 0.0, {}, shortage.again, shortage.short)
    others, short = rows.machine_rows(answer, "s")
    assert others.reached
    assert not short.reached
    assert "1 were made again" in short.note


def test_one_thread_needs_no_question(
    monkeypatch: pytest.MonkeyPatch, shortage: cores.Shortage
) -> None:
    machine = Machine([])
    monkeypatch.setattr(ours, "peak_gops", machine.peak_gops)
    assert cores.measured(machine.measure, threads=1)["call"].seconds == (1,)
    assert shortage == cores.Shortage()
