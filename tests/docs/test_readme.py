"""Figures of README.md are those of committed results, in its table and in its picture."""

from __future__ import annotations

import pytest

from benchmarks import readme


def test_the_table_is_of_the_committed_results() -> None:
    text = readme.README.read_text("utf-8")
    assert readme.with_table(text) == text, "run python -m benchmarks.readme"


def test_every_line_of_the_table_is_faster_than_float_and_than_its_peer() -> None:
    for line in readme.lines():
        assert line.speed > max(1, line.peer_speed or 0), line


@pytest.mark.parametrize("name", readme.COLOURS)
def test_the_picture_shows_the_committed_results(name: str) -> None:
    shown = readme.drawn_points(readme.PICTURES / name)
    assert {key: tuple(value) for key, value in shown.items()} == readme.points()


def test_a_figure_that_no_result_has_is_named() -> None:
    with pytest.raises(ValueError, match=r"models_vnni.json has no row 'nothing' in 'nowhere'"):
        readme.figure("models_vnni", "nowhere", "nothing")
    with pytest.raises(ValueError, match="stands between"):
        readme.with_table("# A README without the comments")
