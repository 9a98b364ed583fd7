"""Every code block of the documentation and the README runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from sybil import Document

from tests.docs.blocks import parser
from tests.docs.evaluators import EVALUATORS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])


# What they do README.md, tuning.md and tests/tune do too, with smaller models.
AGAIN = [
    ROOT / "docs" / f"{name}.md"
    for name in ("dynamic_or_static", "from_neural_compressor", "index", "reading_a_report")
]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=str(p.relative_to(ROOT)), marks=[pytest.mark.slow] * (p in AGAIN))
        for p in DOCUMENTS
    ],
)
def test_every_block_of_a_document_runs(path: Path, folder: Path) -> None:
    # One test a document: its blocks go on where the ones before them ended.
    for example in Document.parse(str(path), parser(EVALUATORS)):
        example.evaluate()
