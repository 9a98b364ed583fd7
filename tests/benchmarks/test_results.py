"""A benchmark's result: missed figures stay visible, and no path of the machine gets out."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.results import Machine, Result, Row

pytestmark = pytest.mark.slow

MACHINE = Machine("A Processor", ("avx2", "fma"), 2, 24 * 2**30)


def result(*rows: Row, name: str = "some", dirty: bool = False) -> Result:
    return Result(
        name=name,
        title="Some figures",
        rows=rows,
        machine=MACHINE,
        versions={"python": "3.11.7", "octavo": "0.1.0"},
        commit="0123456789abcdef",
        dirty=dirty,
        date="2026-11-21 12:00 UTC",
        command="python -m benchmarks.some",
    )


@pytest.mark.parametrize(
    ("bounds", "measured", "reached"),
    [
        ({}, 1.0, None),
        ({"at_least": 0.97}, 0.97, True),
        ({"at_least": 0.97}, 0.9699, False),
        ({"at_most": 0.003}, 0.003, True),
        ({"at_most": 0.003}, 0.0031, False),
        ({"at_least": 0.65, "at_most": 0.66}, 0.655, True),
        ({"at_least": 0.65, "at_most": 0.66}, 0.661, False),
        ({"at_least": 0.65, "at_most": 0.66}, 0.649, False),
        ({"at_least": 0.97}, math.nan, False),
        ({"at_most": 0.97}, math.nan, False),
    ],
)
def test_a_bound_is_reached_or_missed(
    bounds: dict[str, Any], measured: float, reached: bool | None
) -> None:
    row = Row("speed", measured, "x", **bounds)
    assert row.reached is reached
    assert row.verdict == {True: "reached", False: "missed", None: ""}[reached]


@pytest.mark.parametrize(
    ("row", "asked", "shown"),
    [
        (Row("a", 23.0912, "MB", at_most=23.5), "at most 23.5 MB", "23.09 MB"),
        (Row("a", 0.96963, "x", at_least=0.97), "at least 0.97 x", "0.9696 x"),
        (Row("a", 0.5, at_least=0.4, at_most=0.6), "at least 0.4, at most 0.6", "0.5"),
        (Row("a", 123456.7, "nodes"), "", "123,457 nodes"),
        (Row("a", math.nan, "ms"), "", "not measured"),
    ],
)
def test_figures_in_words(row: Row, asked: str, shown: str) -> None:
    assert (row.asked, row.shown) == (asked, shown)


def test_a_missed_figure_stays_in_the_file(tmp_path: Path) -> None:
    rows = (
        Row("speed", 0.9, "x", at_least=0.97, section="Fast", note="1 ms to 2 ms"),
        Row("size", 23.0, "MB", at_most=23.5, section="Small"),
        Row("time", math.nan, "s", section="Fast", note="refused: a | b"),
    )
    path = results.write(result(*rows), tmp_path / "results")
    assert path.name == "some.json"
    data: dict[str, Any] = json.loads(path.read_text())
    assert data["rows"][1] == {
        **{"what": "size", "measured": 23.0, "unit": "MB"},
        **{"at_most": 23.5, "section": "Small"},
    }
    assert data["rows"][2]["measured"] is None
    assert '\n  {"what": "speed", "measured": 0.9, ' in path.read_text()  # a row a line
    read = results.read(path)
    assert [row.reached for row in read.rows] == [False, True, None]
    assert read.machine == MACHINE
    text = read.to_markdown()
    assert "1 of 2 figures reached." in text
    assert "| speed | at least 0.97 x | 0.9 x | **missed** | 1 ms to 2 ms |" in text
    assert "| size | at most 23.5 MB | 23 MB | reached |  |" in text
    assert r"| time |  | not measured |  | refused: a \| b |" in text
    assert re.findall("^## (.*)$", text, re.M) == ["Fast", "Small"]


def test_this_machine_and_no_path_of_it() -> None:
    found = results.result("some", "Some figures", [Row("a", 1.0)], ["--quick"])
    assert found.command == "python -m benchmarks.some --quick"
    assert found.machine.cores >= 1
    assert found.machine.memory_bytes > 2**28
    assert found.machine.instruction_sets
    assert set(found.versions) == {"python", *results._PACKAGES}
    assert {"onnxruntime", "torch", "openvino", "octavo"} < set(found.versions)
    written = found.to_markdown() + json.dumps(found.to_dict())
    assert str(results.REPOSITORY) not in written
    assert str(Path.home()) not in written.replace(str(Path.home()) + "/", "/")


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.invalid")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def test_a_tree_is_dirty_by_anything_but_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert results.code() == ("unknown", True)
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first", "--no-verify")
    commit, dirty = results.code()
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert not dirty
    results.write(result(), tmp_path / "benchmarks" / "results")
    assert results.code() == (commit, False)
    (tmp_path / "code.py").write_text("2\n")
    assert results.code() == (commit, True)


@pytest.mark.parametrize("quick", [False, True])
def test_publish_prints_what_was_missed_and_keeps_only_full_runs(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    monkeypatch.setattr(results.write, "__defaults__", (tmp_path / "results",))
    results.publish(result(Row("speed", 0.9, "x", at_least=0.97, section="Fast")), quick)
    assert "missed: Fast: speed: 0.9 x, asked at least 0.97 x" in capsys.readouterr().out
    kept = sorted(path.name for path in tmp_path.rglob("*.*"))
    assert kept == ([] if quick else ["some.json"])


@pytest.mark.parametrize(
    ("sets", "name", "title"),
    [
        (("avx2", "avx512vnni", "amxint8"), "kernels", "Kernels"),
        (("avx2", "avx512vnni"), "kernels_vnni", "Kernels, AVX512-VNNI without AMX"),
        (("avx2",), "kernels_other", "Kernels, a processor without AVX512-VNNI"),
    ],
)
def test_speeds_are_kept_by_the_kind_of_processor(
    sets: tuple[str, ...], name: str, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "machine", lambda: Machine("A Processor", sets, 2, 2**34))
    found = results.result("kernels", "Kernels", [], speeds=True)
    assert (found.name, found.title) == (name, title)
    assert found.command == "python -m benchmarks.kernels"
    plain = results.result("kernels", "Kernels", [])
    assert (plain.name, plain.title) == ("kernels", "Kernels")
