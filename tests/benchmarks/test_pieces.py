"""A benchmark in pieces: what is kept is not measured again, and what is missing is said."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import pieces, results
from benchmarks.families_aims import Aim, Aims
from benchmarks.pieces import Folder, Section
from benchmarks.results import Row, read, write

pytestmark = pytest.mark.slow

CODE = ("0123456789abcdef", False)


@pytest.fixture(autouse=True)
def one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "code", lambda: CODE)


def section(title: str, figure: float, calls: list[str]) -> Section:
    def rows(aims: Aims) -> Iterator[Row]:
        calls.append(title)
        aims.add(Aim.TORCH_OVER_AO, title, figure)
        yield Row("speed", figure, "x", at_least=1.35, section=title)

    return rows


def test_a_later_run_goes_on_with_the_rest(tmp_path: Path) -> None:
    calls: list[str] = []
    sections = {title: section(title, 1.5, calls) for title in ("a: b, c", "d")}
    pieces.measure(sections, Folder(tmp_path), seconds=-1)
    assert not calls  # the time was up before the first
    pieces.measure(dict(list(sections.items())[:1]), Folder(tmp_path))
    pieces.measure(sections, Folder(tmp_path))
    assert calls == ["a: b, c", "d"]


def test_the_result_has_all_pieces_their_aims_and_what_is_missing(tmp_path: Path) -> None:
    sections = {"a": section("a", 1.5, []), "b": section("b", math.nan, [])}
    pieces.measure(sections, Folder(tmp_path))
    found = pieces.joined("some", "Some", ["a", "b", "c"], Folder(tmp_path), "python -m some")
    assert [(row.section, row.shown, row.reached) for row in found.rows] == [
        ("a", "1.5 x", True),
        ("b", "not measured", False),
        ("c", "not measured", False),
        ("Aims", "1.5 x", True),
    ]
    assert [(piece.section, piece.code) for piece in found.pieces] == [("a", CODE), ("b", CODE)]
    again = read(write(found, tmp_path / "results"))
    assert again.pieces == found.pieces
    page = again.to_markdown()
    assert f"| a | {found.date}, commit 0123456789ab |" in page
    assert "in pieces from" in page


def test_a_section_that_fails_is_a_missed_row(tmp_path: Path) -> None:
    def fails(aims: Aims) -> Iterator[Row]:
        aims.add(Aim.WHISPER, "here", 1.0)
        yield Row("one", 1.0, section="a")
        raise RuntimeError("no room")

    pieces.measure({"a": fails}, Folder(tmp_path))
    kept = Folder(tmp_path).kept("a")
    assert kept is not None
    assert [row.note for row in kept.rows] == ["", "RuntimeError: no room"]
    assert kept.rows[1].reached is False


def test_what_is_left_is_said_and_the_command_says_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = {title: section(title, 1.5, []) for title in ("a", "b")}
    parser = argparse.ArgumentParser()
    pieces.add_options(parser)
    given = ["--into", str(tmp_path), "--for", "-1"]
    assert not pieces.finished(sections, Folder(tmp_path), parser.parse_args(given))
    assert "2 of 2 sections are left; the next is a" in capsys.readouterr().out
    assert pieces.finished(sections, Folder(tmp_path), parser.parse_args([]))
    command = pieces.command("some", ["--threads", "1", *given, "--again"])
    assert command == "python -m benchmarks.some --threads 1"
