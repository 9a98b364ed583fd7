"""docs/add_an_op.md, followed to the letter: its operators work by what it shows of them alone.

Its blocks are put in a folder of their own, whose modules stand beside the product's in a process
that ends with the test. Nothing is left of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Document

from tests.docs.blocks import parser
from tests.docs.evaluators import EVALUATORS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "docs" / "add_an_op.md"

# What a file of the folder src/octavo/... would be: found by the package that it belongs to.
BESIDE = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path

ROOT = Path(__file__).parent


class Beside:
    @staticmethod
    def find_spec(name, path, target=None):
        more = ROOT.joinpath("src", *name.split("."))
        if not more.is_dir() or path is None:
            return None
        spec = PathFinder.find_spec(name, path)
        spec.submodule_search_locations.append(str(more))
        return spec


sys.meta_path.insert(0, Beside)
sys.path.insert(0, str(ROOT))
"""


def blocks() -> dict[str, str]:
    """The files that the document shows, by path."""
    shown = Document.parse(str(RECIPE), parser(EVALUATORS)).examples()
    return {str(e.region.lexemes["title"]): str(e.parsed) for e in shown}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Its files, where they are to be."""
    for path, text in blocks().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "conftest.py").write_text(BESIDE)
    return tmp_path


def test_what_it_adds_works(checkout: Path) -> None:
    tests = [path for path in blocks() if path.startswith("tests/")]
    assert len(tests) > 1
    how = ["-q", "-x", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "ignore", *tests]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *how],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout and "skipped" not in ended.stdout


@pytest.mark.parametrize("path", [p for p in blocks() if not p.startswith("tests/")])
def test_it_adds_nothing_that_is_there(path: str) -> None:
    assert path.endswith(".py") and not (ROOT / path).exists()
