"""README's table and picture are what the committed results say, and README stays one screen."""

from __future__ import annotations

import re

import pytest

from benchmarks import readme
from benchmarks.readme_plot import draw, label

TEXT = readme.README.read_text(encoding="utf-8")


def test_the_table_is_of_the_committed_results() -> None:
    assert readme.written(TEXT) == TEXT, "run `python -m benchmarks.readme`"


def test_a_figure_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError, match="models_vnni"):
        readme.value("models_vnni", "all-MiniLM-L6: accuracy", "gone")
    with pytest.raises(ValueError, match="README has no"):
        readme.written("# Octavo\n")


@pytest.mark.parametrize("theme", readme.THEMES)
def test_the_picture_is_of_the_committed_results(theme: str) -> None:
    svg = (readme.PICTURES / f"speed-{theme}.svg").read_text(encoding="utf-8")
    for point in readme.points():
        for line in label(point).split("\n"):
            assert f">{line}<" in svg, "run `python -m benchmarks.readme`"
    drawn = re.search(r"Matplotlib v([\d.]+)", svg)
    assert drawn is not None
    if drawn[1] == pytest.importorskip("matplotlib").__version__:
        assert draw(readme.points(), theme) == svg


def test_readme_is_one_screen() -> None:
    source = re.sub(r"^(```.*|<.*|  <.*|\|[-:|]+\|)?\n", "", TEXT, flags=re.MULTILINE)
    assert len(source.splitlines()) <= 60


def test_every_figure_of_readme_is_one_of_the_table_the_picture_or_a_size() -> None:
    """A figure that is typed would be right until the next measurement."""
    before, _, rest = TEXT.partition(readme.BEGIN)
    typed = before + rest.partition(readme.END)[2]
    assert not re.search(r"\d\.\d+ times|\d(\.\d+)?x\b|\d%|\b0\.\d", typed)
