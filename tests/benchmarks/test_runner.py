"""Jobs reach their child as they were sent, and rows say what comparisons hold."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from benchmarks import parts, rows, runner
from benchmarks.machine import other_programs
from benchmarks.runner import Answer, Job
from octavo.measure.timing import Comparison, Timing

pytestmark = pytest.mark.slow


def comparison(**seconds: float) -> Comparison:
    return Comparison({name: Timing((s, s, s), (1.0,) * 3) for name, s in seconds.items()})


def test_a_job_survives_its_way() -> None:
    cells = ((1, 384, 384), (8, 768, 768))
    job = Job("parts:linear", cells, threads=2, amx=False, peers=("a", "b"))
    assert Job.from_json(job.to_json()) == job


def test_the_environment_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ISA", "reference")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    found = Job("parts:linear", (), threads=2).environment()
    assert "OCTAVO_ISA" not in found
    assert "ATEN_CPU_CAPABILITY" not in found
    assert found["OMP_NUM_THREADS"] == "2"
    assert found["PATH"] == os.environ["PATH"]
    held = Job("parts:linear", (), isa="avx2", held="avx2").environment()
    assert held["OCTAVO_ISA"] == held["ATEN_CPU_CAPABILITY"] == "avx2"
    assert held["ONEDNN_MAX_CPU_ISA"] == held["MKL_ENABLE_INSTRUCTIONS"] == "AVX2"


@pytest.mark.sweep(2)
@pytest.mark.parametrize("amx", [False, True])
def test_a_child_answers(amx: bool) -> None:
    cells, names = ((2, 32, 16),), ("torch fp32",)
    answer = runner.run(Job("parts:linear", cells, amx=amx, rounds=2, peers=names, ours=False))
    assert list(answer.found) == ["2 x 32 x 16"]
    assert len(answer.found["2 x 32 x 16"]["torch fp32"].seconds) == 2
    assert answer.isa == ""
    assert 0 <= answer.others < (os.cpu_count() or 1)


def test_speed_is_over_the_fastest_of_each_cell() -> None:
    found = {"1 x 1 x 1": comparison(a=1, b=2, c=4), "2 x 1 x 1": comparison(a=4, b=6, c=5)}
    each = rows.speeds(found, "a", ["b", "c"])
    assert [(s.cell, s.over, s.ratio.median) for s in each] == [
        ("1 x 1 x 1", "b", 2.0),
        ("2 x 1 x 1", "c", 1.25),
    ]
    mean = rows.mean_row("mean", each, 1.6, "s")
    assert mean.measured == pytest.approx(math.sqrt(2.5))
    assert not mean.reached
    slowest = rows.slowest_row("slowest", each, 1.0, "s")
    assert (slowest.measured, slowest.reached) == (1.25, True)
    assert slowest.note.startswith("2 x 1 x 1, to c; ")
    notes = [row.note for row in rows.cell_rows(found, "a", ["b", "c"], "s")]
    assert notes[0] == "to b; a 1000000.0, b 2000000.0, c 4000000.0 us"


def test_the_least_share_is_what_is_asked_for() -> None:
    found = {"x": comparison(a=1, b=2), "y": comparison(a=1, b=4)}
    shares = {cell: compared.time("a", over="b") for cell, compared in found.items()}
    least, *each = rows.share_rows(shares, 0.3, found, "s")
    assert (least.measured, least.reached, least.note) == (0.25, False, "y")
    assert [row.measured for row in each] == [0.5, 0.25]
    assert [row.reached for row in each] == [None, None]
    (only,) = rows.share_rows({"x": shares["x"]}, 0.3, found, "s")
    assert only.reached


def test_a_limit_is_read_before_each_round() -> None:
    limits = iter([9.0, 1.0, 2.0, 3.0])
    found = parts.against_limit(lambda: None, "limit", lambda: next(limits), 3)
    assert found["limit"].seconds == (1.0, 2.0, 3.0)


@pytest.mark.real_time
def test_other_programs_are_seen_and_ones_own_work_is_not() -> None:
    watch = other_programs()
    code = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert watch() > 0.3
    (row,) = rows.machine_rows(Answer("", watch(), {}), "s")
    assert not row.reached
