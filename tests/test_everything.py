"""What `make test-all` says at its end, and its exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import everything
from tests.native.building import NOT_RUN, have_tools
from tests.planted.check import FAULTS

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def nothing_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCTAVO_ALLOW_MISSING", raising=False)


def test_the_summary_names_what_did_not_run() -> None:
    said = everything.summary({"clang": (0, 12.4), "windows": (NOT_RUN, 0.1), "pytest": (1, 700.0)})
    assert said.splitlines() == [
        "clang        12 s  passed",
        "windows       0 s  DID NOT RUN: its tools are missing, see above",
        "pytest      700 s  FAILED (1)",
    ]


@pytest.mark.parametrize(
    ("statuses", "alone", "allowed"),
    [
        ([0, 0], 0, 0),
        ([0, NOT_RUN], NOT_RUN, 0),
        ([1, NOT_RUN], 1, 1),
        ([-9, 0], 1, 1),
    ],
)
def test_what_did_not_run_is_a_failure_unless_allowed(
    statuses: list[int], alone: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert everything.verdict(statuses) == alone
    monkeypatch.setenv("OCTAVO_ALLOW_MISSING", "1")
    assert everything.verdict(statuses) == allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clang", "aarch64", "windows"])
def test_a_target_without_its_tools_says_so_and_fails(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"tests.{name}.run"]
    nowhere = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=nowhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == NOT_RUN, done.stderr
    assert "NOT TESTED" in done.stdout and "apt-get install" in done.stdout


def test_every_target_of_another_system_is_a_part_of_it() -> None:
    scripts = {path.parent.name for path in (ROOT / "tests").glob("*/run.py")}
    assert scripts == {*everything.ELSEWHERE, "release"}


def test_tools_that_are_there_are_not_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert have_tools("x", "nothing", {"python3": "python3"})
    assert capsys.readouterr().out == ""


def test_every_planted_fault_has_its_place() -> None:
    """A place that was changed takes its fault along, or `make planted` ends there."""
    lost = [f.name for f in FAULTS if (ROOT / f.path).read_text().count(f.before) != 1]
    assert FAULTS and lost == []
