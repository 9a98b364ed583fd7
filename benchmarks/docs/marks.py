"""Marks of pages, each on a line of its own, and what stands between one and `<!-- end -->`.

    <!-- measured: NAME -->             the command, the machine, the versions, the commit
    <!-- results: NAME: SECTION -->     the table of one section
    <!-- headlines: NAME: SECTION -->   of it, what was asked for, and means
    <!-- figures: NAME: SECTION -->     what was measured in it, without what was asked for
    <!-- gains: NAME: SECTION -->       of those, the headlines
    <!-- asked: NAME -->                all that was asked for, of every section
    <!-- families: NAME: TABLE -->      a table of `benchmarks.families_table`, a family a line
    <!-- summary -->                    README's table: the fastest peer of each kind of model
    <!-- missed -->                     every figure of all results that was missed
    <!-- every -->                      all results, with the command and commit of each
    <!-- plot: NAME -->                 a picture of `benchmarks.docs.plots`, light and dark
    <!-- example: NAME -->              a program of `examples`, without its command line
    <!-- command line -->               every command with its options

A new mark needs no end: `python -m benchmarks.docs` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks import readme
from benchmarks.docs import figures
from benchmarks.docs.commands import reference
from benchmarks.docs.plots import picture
from benchmarks.docs.programs import body
from benchmarks.results import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
END = "<!-- end -->"
_FILLINGS: dict[str, Callable[[str, str], Iterable[str]]] = {
    "measured": figures.measured,
    "results": figures.section,
    "headlines": figures.headlines,
    "figures": figures.amounts,
    "gains": figures.gains,
    "asked": figures.asked,
    "families": figures.families,
    "summary": lambda *_: readme.lines(),
    "missed": figures.missed,
    "every": figures.every,
    "plot": lambda name, _: picture(name),
    "example": body,
    "command line": lambda *_: reference(),
}
_MARK = re.compile(rf"<!-- ({'|'.join(_FILLINGS)})(?:: ([^:]+?))?(?:: (.+?))? -->")


def written(text: str) -> str:
    """The page with everything between its marks and their ends as it is now.

    Raises LookupError where a mark asks for what is not there.
    """
    return "\n".join(_lines(text.split("\n")))


def is_mark(line: str) -> bool:
    """Whether a line is a mark, or the end of what stands behind one."""
    return line == END or _MARK.fullmatch(line) is not None


def _lines(lines: Sequence[str]) -> Iterator[str]:
    i = 0
    while i < len(lines):
        yield lines[i]
        match = _MARK.fullmatch(lines[i])
        i += 1
        if match is None:
            continue
        filling = _FILLINGS[match[1]](match[2] or "", match[3] or "")
        yield from ("\n".join(filling).strip("\n").split("\n"))
        yield END
        stop = next((j for j in range(i, len(lines)) if lines[j].startswith("<!-- ")), None)
        if stop is not None and lines[stop] == END:
            i = stop + 1
