"""Figures that pages state in words, and messages that they quote, are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.docs.figures import value
from octavo.recipe import preset

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OF_DEFINITIONS = {"add_an_op", "numbers", "operators", "reading_a_report"}
"""Their figures define something, are shown output, or have a test of their own."""

_TYPED = re.compile(
    r"(?<![\w.])\d+(\.\d+)? ?(times|x|ms|%)(?!\w)|\d (tokens|sentences) a second|percent"
)
_MINILM = "all-MiniLM-L6"
_NATIVE = f"{_MINILM}, target native: "
_ERROR = f"{_NATIVE}error, 1 - cosine of hidden states"
_PORTABLE = f"{_MINILM}: accuracy"


def prose(page: Path) -> str:
    """A page without code, and without the tables that a script writes."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    return re.sub(r"<!-- (?!end).*?<!-- end -->", "", text, flags=re.S)


@pytest.mark.parametrize(
    "page",
    [p for p in sorted(DOCS.glob("*.md")) if p.stem not in OF_DEFINITIONS],
    ids=lambda p: p.stem,
)
def test_no_measured_figure_is_typed(page: Path) -> None:
    """It would be right until the next measurement: `figures` of a mark stay so."""
    assert not _TYPED.search(prose(page)), "name a result instead, as benchmarks/docs/marks.py says"


@pytest.mark.parametrize("text", ["is 2.4x as fast", "takes 1.3 times", "0.6% slower", "in 12 ms"])
def test_a_typed_figure_is_found(text: str) -> None:
    assert _TYPED.search(text)


def found(section: str, what: str) -> float:
    return value("models_vnni", section, what)


def test_what_pages_say_in_words_is_so() -> None:
    for page in ("choose", "embeddings", "recipes"):
        assert "half the error" in prose(DOCS / f"{page}.md")
    accurate = "octavo native int8-accurate"
    assert found(_ERROR, accurate) < 0.55 * found(_ERROR, "octavo native int8")
    slower = f"{accurate}: speed over octavo native int8, geometric mean"
    assert 0.8 < found(f"{_NATIVE}speed, 1 thread", slower) < 0.97  # "somewhat slower"

    assert "a fifth of the error" in prose(DOCS / "platforms.md").replace("\n  ", " ")
    ours, theirs = (
        found(_PORTABLE, f"{who}: 1 - cosine of hidden states")
        for who in ("octavo int8", "quantize_dynamic per channel")
    )
    assert 0.15 < ours / theirs < 0.25


def test_the_recipes_page_has_the_bounds_of_the_presets() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)`[^|]*\|.*\| ([\d.]+) \| [\d.]+ \|$", prose(DOCS / "recipes.md"), re.M
    )
    assert len(rows) == 8
    for name, bound in rows:
        assert preset(name).max_error == float(bound), name


def test_messages_that_troubleshooting_quotes_are_those_of_the_code() -> None:
    """Whoever searches the page for an error finds it."""
    table = prose(DOCS / "troubleshooting.md").partition("What does the message mean?")[2]
    quoted = [
        m for row in re.findall(r"^\| (`.*?) \|", table, re.M) for m in re.findall("`(.+?)`", row)
    ]
    assert len(quoted) > 10
    written = [*ROOT.glob("src/octavo/**/*.py"), *ROOT.glob("tests/errors/transcripts/*.txt")]
    # Literals that go on in the next line are one message.
    texts = "\n".join(re.sub(r'"\s*\n\s*f?"', "", p.read_text("utf-8")) for p in written)
    assert not [message for message in quoted if message not in texts]
