"""Figures of benchmarks/results/NAME.json as Markdown, for the marks of `benchmarks.docs.marks`.

Links begin at the repository's root, with a slash.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from benchmarks.families_table import TABLES
from benchmarks.results import FOLDER, Result, Row, read, table
from benchmarks.rows import OTHERS


def names() -> list[str]:
    """Of the results that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@cache
def result(name: str) -> Result:
    """Raises LookupError where there is none."""
    if name not in names():
        raise LookupError(f"there is no result {name!r}; there are {', '.join(names())}")
    return read(FOLDER / f"{name}.json")


@cache
def measured_values(name: str) -> Mapping[tuple[str, str], float]:
    """By section and what was measured; what could not be measured is left out."""
    rows = result(name).rows
    return {(r.section, r.what): r.measured for r in rows if math.isfinite(r.measured)}


def value(name: str, section: str, what: str) -> float:
    """A figure of a committed result. Raises LookupError where it is not there."""
    try:
        return measured_values(name)[section, what]
    except KeyError:
        message = f"result {name!r} has no {what!r} in section {section!r}"
        raise LookupError(message) from None


def measured(name: str, _: str = "") -> Iterable[str]:
    """The command, the machine, the versions, the commit."""
    return result(name).origin().splitlines()


def section(name: str, wanted: str) -> Iterable[str]:
    """The table of one section; of all where it has no name."""
    return table(_rows(name, wanted))


def headlines(name: str, wanted: str) -> Iterable[str]:
    """Of a section what was asked for, and means."""
    return table(_headlines(name, wanted))


def amounts(name: str, wanted: str) -> Iterator[str]:
    """What was measured in a section and how much, without what was asked for."""
    yield from _amounts(_rows(name, wanted))


def gains(name: str, wanted: str) -> Iterator[str]:
    """Of those what was asked for, and means."""
    yield from _amounts(_headlines(name, wanted))


def asked(name: str, _: str = "") -> Iterator[str]:
    """One table of all figures with a bound, each with its section before it."""
    yield from ("| where | what | asked | measured | |", "|---|---|---|--:|---|")
    for row in result(name).rows:
        if row.reached is not None:
            verdict = f"**{row.verdict}**" if row.reached is False else row.verdict
            yield f"| {_cells(row)} | {verdict} |"


def families(name: str, wanted: str) -> Iterable[str]:
    """A table of `benchmarks.families_table`, a family a line."""
    if wanted not in TABLES:
        raise LookupError(f"there is no table {wanted!r}; there are {', '.join(TABLES)}")
    return TABLES[wanted](result(name))


def missed(_: str = "", __: str = "") -> Iterator[str]:
    """Every figure of all results that was missed, each with its section before it."""
    yield from ("| result | where | what | asked | measured |", "|---|---|---|---|--:|")
    for name in names():
        for row in result(name).missed:
            yield f"| {link(name, name)} | {_cells(row)} |"


def every(_: str = "", __: str = "") -> Iterator[str]:
    """One line for each result: where it is, what wrote it, and of which code."""
    yield from ("| result | written by | commit | reached |", "|---|---|---|--:|")
    for name in names():
        found = result(name)
        bounds = sum(row.reached is not None for row in found.rows)
        reached = f"{bounds - len(found.missed)} of {bounds}"
        code = f"`{found.command}` | {found.commit[:12]}, {found.date[:10]}"
        yield f"| {link(found.title, name)} | {code} | {reached} |"


def _headlines(name: str, wanted: str) -> list[Row]:
    rows = _rows(name, wanted)
    return [r for r in rows if r.reached is not None or "geometric mean" in r.what]


def _amounts(rows: Iterable[Row]) -> Iterator[str]:
    yield from ("| what | measured |", "|---|--:|")
    for row in rows:
        if row.what != OTHERS:
            yield f"| {_cell(row.what)} | {_cell(row.shown)} |"


def _rows(name: str, wanted: str) -> list[Row]:
    rows = [row for row in result(name).rows if row.section == wanted]
    if not rows:
        known = "\n".join(dict.fromkeys(row.section for row in result(name).rows))
        raise LookupError(f"result {name!r} has no section {wanted!r}; it has\n{known}")
    return rows


def link(text: str, name: str) -> str:
    """To a result's file; the site has a page in its place (docs/hooks/results.py)."""
    return f"[{text}](/benchmarks/results/{name}.json)"


def _cells(row: Row) -> str:
    return " | ".join(map(_cell, (row.section, row.what, row.asked, row.shown)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
