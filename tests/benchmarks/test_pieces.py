"""A benchmark in pieces: what is kept is not measured again, and what is missing is said."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import pieces, results
from benchmarks.families_aims import Aim, Aims
from benchmarks.pieces import Folder, Section
from benchmarks.results import Row, read, write

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


def test_other_code_measures_again_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sections = {"a": section("a", 1.5, calls)}
    pieces.measure(sections, Folder(tmp_path))
    pieces.measure(sections, Folder(tmp_path), again=True)
    assert calls == ["a"]
    monkeypatch.setattr(results, "code", lambda: ("another", False))
    pieces.measure(sections, Folder(tmp_path))
    assert calls == ["a"]
    pieces.measure(sections, Folder(tmp_path), again=True)
    assert calls == ["a", "a"]


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
