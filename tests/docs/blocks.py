"""Code blocks of a Markdown document: every one, fenced or indented, as CommonMark finds them.

Sybil's own lexers look for what they know; here a block that nobody knows is found as well, so that
none can escape its test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from markdown_it import MarkdownIt
from markdown_it.token import Token
from sybil import Document, Example, Region
from sybil.region import Lexeme

Evaluator = Callable[[Example], str | None]
"""Runs one block; what it returns is what is wrong with it."""


def parser(evaluators: Mapping[str, Evaluator]) -> Callable[[Document], Iterator[Region]]:
    """A parser for Sybil that gives each block to the evaluator of its language.

    A block of another language, an indented one, and HTML that holds code are failures.
    """

    def parse(document: Document) -> Iterator[Region]:
        for token in MarkdownIt("commonmark").parse(document.text):
            if token.type in ("fence", "code_block", "html_block") and token.map:
                region = _region(document, token)
                region.evaluator = _evaluator(evaluators, token, region)
                if region.evaluator is not None:
                    yield region

    return parse


def _region(document: Document, token: Token) -> Region:
    """The block; `lexemes` are its language and title, `parsed` is its text."""
    lines = document.text.splitlines(keepends=True)
    first, last = token.map or (0, 0)
    start = sum(map(len, lines[:first]))
    end = start + sum(map(len, lines[first:last]))
    words = token.info.split()
    title = re.search(r'title="([^"]+)"', token.info)
    fenced = token.type == "fence"
    return Region(
        start,
        end,
        parsed=Lexeme(token.content, 0, 0 if fenced else -1),
        lexemes={"language": words[0] if words else "", "title": title[1] if title else ""},
    )


def _evaluator(
    evaluators: Mapping[str, Evaluator], token: Token, region: Region
) -> Evaluator | None:
    if token.type == "html_block":
        code = re.search(r"<(pre|code|script)\b", token.content)
        return _refuse("HTML with code in it: use a fenced block") if code else None
    if token.type == "code_block":
        return _refuse("an indented block has no language: fence it, as `text` if it is no code")
    language = str(region.lexemes["language"])
    if language not in evaluators:
        known = ", ".join(sorted(evaluators))
        return _refuse(f"nothing runs blocks of language {language!r}; known: {known}")
    return evaluators[language]


def _refuse(message: str) -> Evaluator:
    return lambda example: message
