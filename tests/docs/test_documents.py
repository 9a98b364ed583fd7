"""Every code block of the documentation and the README runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from sybil import Document

from tests.docs.blocks import parser
from tests.docs.commands import quick
from tests.docs.evaluators import EVALUATORS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OF_A_CHECKOUT = ROOT / "docs" / "add_an_op.md"  # whose files test_add_an_op.py puts in place
DOCUMENTS = sorted(
    {ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")} - {OF_A_CHECKOUT}
)


FIRST = ROOT / "docs" / "quickstart_onnx.md"
"""What a reader types first, in an empty folder."""


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in DOCUMENTS if p != FIRST]
)
def test_every_block_of_a_document_runs(path: Path, folder: Path) -> None:
    # One test a document: its blocks go on where the ones before them ended.
    for example in Document.parse(str(path), parser(EVALUATORS)):
        example.evaluate()


@pytest.mark.parametrize(
    ("path", "blocks", "made"),
    [
        pytest.param(FIRST, None, "data.npz model.native.onnx page.html", id="quickstart_onnx"),
        pytest.param(ROOT / "README.md", 1, "report.html model.native.onnx", id="README"),
    ],
)
def test_the_first_ten_minutes_run_as_written_from_an_empty_folder(
    path: Path,
    blocks: int | None,
    made: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with quick():
        for example in list(Document.parse(str(path), parser(EVALUATORS)))[:blocks]:
            example.evaluate()
    for name in ("model.onnx", *made.split()):
        assert (folder / name).is_file(), name
