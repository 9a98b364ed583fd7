"""Marks of pages, each on a line of its own, and what stands between one and `<!-- end -->`.

    <!-- measured: NAME -->             the command, the machine, the versions, the commit
    <!-- results: NAME: SECTION -->     the table of one section
    <!-- headlines: NAME: SECTION -->   of it, what was asked for, and means
    <!-- figures: NAME: SECTION -->     what was measured in it, without what was asked for
    <!-- gains: NAME: SECTION -->       of those, the headlines
    <!-- asked: NAME -->                all that was asked for, of every section
    <!-- families: NAME: TABLE -->      a table of `benchmarks.families_table`, a family a line
    <!-- missed -->                     every figure of all results that was missed
    <!-- every -->                      all results, with the command and commit of each
    <!-- threads -->                    speed by threads, of every result of `thread_counts`
    <!-- summary -->                    README's table: a model a line
    <!-- plot: NAME -->                 a picture of `benchmarks.docs.plots`, light and dark
    <!-- example: NAME -->              a program of `examples`, without its command line
    <!-- command line -->               every command with its options
    <!-- names: PACKAGE -->             what a package offers, a name a line

A new mark needs no end: `python -m benchmarks.docs` writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.docs import figures
from benchmarks.docs.commands import reference
from benchmarks.docs.names import names
from benchmarks.docs.plots import picture
from benchmarks.docs.programs import body
from benchmarks.docs.summary import summary
from benchmarks.docs.threads import thread_table
from benchmarks.results import REPOSITORY

DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
PAGES = [README, *sorted(DOCS.glob("**/*.md"))]
END = "<!-- end -->"
_FILLINGS: dict[str, Callable[[str, str], Iterable[str]]] = {
    "measured": figures.measured,
    "results": figures.section,
    "headlines": figures.headlines,
    "figures": figures.amounts,
    "gains": figures.gains,
    "asked": figures.asked,
    "families": figures.families,
    "missed": figures.missed,
    "every": figures.every,
    "threads": lambda *_: thread_table(),
    "summary": lambda *_: summary(),
    "plot": lambda name, _: picture(name),
    "example": body,
    "command line": lambda *_: reference(),
    "names": names,
}
_MARK = re.compile(rf"<!-- ({'|'.join(_FILLINGS)})(?:: ([^:]+?))?(?:: (.+?))? -->")


_FROM_ROOT = re.compile(r'(\]\(|\bsrc(?:set)?=")/([^)"]+)')


def written(text: str, page: Path = DOCS / "index.md") -> str:
    """The text of `page` with everything between its marks and their ends as it is now.

    Raises LookupError where a mark asks for what is not there.
    """
    return "\n".join(_lines(text.split("\n"), page.parent))


def is_mark(line: str) -> bool:
    """Whether a line is a mark, or the end of what stands behind one."""
    return line == END or _MARK.fullmatch(line) is not None


def _lines(lines: Sequence[str], folder: Path) -> Iterator[str]:
    i = 0
    while i < len(lines):
        yield lines[i]
        match = _MARK.fullmatch(lines[i])
        i += 1
        if match is None:
            continue
        filling = _FILLINGS[match[1]](match[2] or "", match[3] or "")
        yield from _seen_from(folder, "\n".join(filling).strip("\n")).split("\n")
        yield END
        stop = next((j for j in range(i, len(lines)) if lines[j].startswith("<!-- ")), None)
        if stop is not None and lines[stop] == END:
            i = stop + 1


def _seen_from(folder: Path, text: str) -> str:
    """Links and pictures, which begin with a slash, as a page in `folder` names them."""

    def relative(match: re.Match[str]) -> str:
        return match[1] + os.path.relpath(REPOSITORY / match[2], folder)

    return _FROM_ROOT.sub(relative, text)
