"""What `make quick` and `make test` run of a test's cases, and what a run says of its time."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = """
import pytest

@pytest.mark.parametrize("a", range(3), ids=iter("xyz"))
@pytest.mark.parametrize("b", [1, 2])
def test_many(a, b): pass

@pytest.mark.sweep(4)
@pytest.mark.parametrize("a", range(9))
def test_swept(a): pass

@pytest.mark.slow
def test_slow(): pass

def test_costly(): pass
"""
INI = (HERE.parent / "pyproject.toml").read_text().partition("[tool.pytest.ini_options]")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One file of tests beside the real plugins; test_costly took a minute in an earlier run."""
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "seconds.py"):
        shutil.copy(HERE / name, tmp_path / "tests" / name)
    (tmp_path / "tests/test_one.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text("".join(INI[1:]))
    (tmp_path / "build").mkdir()
    kept = {"tests/test_one.py::test_costly": 60.0}
    (tmp_path / "build/seconds.json").write_text(json.dumps(kept))
    return tmp_path


def pytest_says(checkout: Path, *options: str) -> str:
    plugins = ("no:cacheprovider", "xdist", "pytest_rerunfailures")
    named = [part for name in plugins for part in ("-p", name)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *named, *options],
        capture_output=True,
        text=True,
        cwd=checkout,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    ).stdout


def ids(checkout: Path, *options: str) -> list[str]:
    said = pytest_says(checkout, "--collect-only", *options)
    return re.findall(r"^tests/test_one\.py::(\S+)", said, re.MULTILINE)


def test_quick_takes_the_first_case_of_what_is_neither_slow_nor_costly(checkout: Path) -> None:
    assert ids(checkout, "--quick") == ["test_many[1-x]", "test_swept[0]"]


@pytest.mark.parametrize(("mark", "count"), [("not slow", 3), ("slow", 6)])
def test_every_fourth_case_of_a_sweep_is_not_slow(checkout: Path, mark: str, count: int) -> None:
    found = [name for name in ids(checkout, "-m", mark) if "swept" in name]
    assert len(found) == count
    assert ("test_swept[4]" in found) is (mark != "slow")


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_says_and_keeps_where_its_time_went(checkout: Path, workers: str) -> None:
    said = pytest_says(checkout, "-n", workers, "-m", "not slow")
    assert re.search(
        r"seconds: \d+ of collection, \d+ of set-up, .*\n.* s  tests/test_one.py", said
    )
    kept = json.loads((checkout / "build/seconds.json").read_text())
    assert kept["tests/test_one.py::test_costly"] < 1
    assert len(kept) == 10
