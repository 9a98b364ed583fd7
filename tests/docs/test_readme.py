"""README stays one screen, and no measured figure is typed into it.

Its table and its picture are tested with those of all pages, in test_site.py.
"""

from __future__ import annotations

import re

from benchmarks.docs.marks import README

TEXT = README.read_text(encoding="utf-8")


def test_readme_is_one_screen() -> None:
    source = re.sub(r"^(```.*|<.*|  <.*|\|[-:|]+\|)?\n", "", TEXT, flags=re.MULTILINE)
    assert len(source.splitlines()) <= 60


def test_every_figure_of_readme_is_one_of_the_table_the_picture_or_a_size() -> None:
    """A figure that is typed would be right until the next measurement."""
    typed = re.sub(r"<!-- (?!end).*?<!-- end -->", "", TEXT, flags=re.DOTALL)
    assert "| Embeddings" not in typed
    assert not re.search(r"\d\.\d+ times|\d(\.\d+)?x\b|\d%|\b0\.\d", typed)
