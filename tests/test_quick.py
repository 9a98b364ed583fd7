"""What `make quick` and `make test` run of a test's cases."""

from __future__ import annotations

import os
import re
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

def test_heavy(): pass
"""


def ids(tmp_path: Path, *options: str) -> list[str]:
    (tmp_path / "conftest.py").write_bytes((HERE / "conftest.py").read_bytes())
    (tmp_path / "heavy.txt").write_text("test_heavy\ntest_other\n")
    (tmp_path / "test_one.py").write_text(TESTS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            *options,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    return re.findall(r"^test_one\.py::(\S+)", done.stdout, re.MULTILINE)


def test_quick_takes_the_first_case_of_what_is_neither_slow_nor_heavy(tmp_path: Path) -> None:
    assert ids(tmp_path, "--quick") == ["test_many[1-x]", "test_swept[0]"]


@pytest.mark.parametrize(("mark", "count"), [("not slow", 3), ("slow", 6), ("slow or not slow", 9)])
def test_every_fourth_case_of_a_sweep_is_not_slow(tmp_path: Path, mark: str, count: int) -> None:
    found = [name for name in ids(tmp_path, "-m", mark) if "swept" in name]
    assert len(found) == count
    assert ("test_swept[4]" in found) is (mark != "slow")


def test_heavy_names_are_sorted_and_there_once() -> None:
    names = (HERE / "heavy.txt").read_text().split()
    assert names == sorted(set(names))
