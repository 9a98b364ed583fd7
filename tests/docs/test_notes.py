"""Code names the notes that explain it, and each note is named by code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
CODE = [
    *(path for folder in ("src", "native", "benchmarks") for path in (ROOT / folder).rglob("*.*")),
    ROOT / "CMakeLists.txt",
]
NAMED = re.compile(r'(docs/notes/\w+\.md): "([^"]+)"')


def named() -> set[tuple[str, str]]:
    """The notes that code names: page and heading."""
    texts = (p.read_text() for p in CODE if p.suffix in (".py", ".h", ".cpp", ".txt"))
    return {found.groups() for text in texts for found in NAMED.finditer(text)}  # type: ignore[misc]


@pytest.mark.parametrize("page", NOTES, ids=lambda path: path.stem)
def test_code_and_notes_name_each_other(page: Path) -> None:
    where = str(page.relative_to(ROOT))
    headings = set(re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE))
    assert headings == {heading for of, heading in named() if of == where}


NO_VERBS = re.compile(
    r"[^A-Za-z]|(All|As|At|Both|By|Each|Every|For|From|How|If|In|It|None|Not|Nothing|Of|On|One|Only"
    r"|Says|So|That|Those|To|What|Whatever|When|Where|Whether|Which|Who|Why|With)\b"
)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """Ruff's D401 tells articles and other moods of verbs; these words pass it."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and NO_VERBS.match(ast.get_docstring(node) or "Has none"):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_no_page_is_named_that_is_not_there() -> None:
    pages = {str(page.relative_to(ROOT)) for page in NOTES}
    assert {page for page, _ in named()} == pages
    text = (ROOT / "docs" / "architecture.md").read_text()
    sizes = text.partition("### How large it is")[2].partition("\n### ")[0]
    assert len(text.replace(sizes, "").split()) <= 1650
