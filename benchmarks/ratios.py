"""Rows of a grid of cells: the geometric mean, the slowest cell, and each cell with its times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.children import Answer
from benchmarks.limits import LIMIT, PARTS
from benchmarks.ours import OCTAVO
from benchmarks.results import Row
from benchmarks.timing import Comparison, Ratio

Found = Mapping[str, Comparison]
MOST_OTHERS = 0.1


@dataclass(frozen=True)
class Speed:
    """How many times as fast one call is as the fastest of others, in one cell."""

    cell: str
    over: str
    ratio: Ratio


def speeds(found: Found, of: str, over: Sequence[str]) -> list[Speed]:
    """One for each cell; which of `over` is the fastest is decided cell by cell."""
    made = []
    for cell, compared in found.items():
        best = min(over, key=lambda name: compared[name].median)
        made.append(Speed(cell, best, compared.speed(of, over=best)))
    return made


def geometric_mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def mean_row(what: str, found: Sequence[Speed], at_least: float | None, section: str) -> Row:
    """The geometric mean of the cells."""
    return Row(
        f"{what}, geometric mean of {len(found)}",
        geometric_mean([speed.ratio.median for speed in found]),
        "x",
        at_least=at_least,
        section=section,
    )


def slowest_row(what: str, found: Sequence[Speed], at_least: float | None, section: str) -> Row:
    """The cell with the least ratio."""
    worst = min(found, key=lambda speed: speed.ratio.median)
    return Row(
        f"{what}, slowest of {len(found)}",
        worst.ratio.median,
        "x",
        at_least=at_least,
        section=section,
        note=f"{worst.cell}, to {worst.over}; quartiles {worst.ratio.low:.3f} to "
        f"{worst.ratio.high:.3f}",
    )


def limit_rows(
    found: Found, over: Sequence[str], call: str, beside: str, section: str
) -> Iterator[Row]:
    """How fast a layer would be that takes no more than what bounds it; see `limits`."""
    best = over[0] if len(over) == 1 else "best of them"
    for name, what, counted in (
        (LIMIT, "a layer at the machine's limits", f"{call}, and no more than its products"),
        (PARTS, "a layer that never waits", f"the same, and its parts alone: {beside}"),
    ):
        row = mean_row(f"{best}, against {what}", speeds(found, name, over), None, section)
        shares = [compared.time(name, over=OCTAVO).median for compared in found.values()]
        reached = f"Octavo is at {geometric_mean(shares):.3f} of that speed"
        yield replace(row, note=f"{counted}; {reached}")


def cell_rows(found: Found, of: str, over: Sequence[str], section: str) -> Iterator[Row]:
    """Each cell for information: its ratio to the fastest of `over`, and everybody's times."""
    for speed in speeds(found, of, over):
        yield Row(
            speed.cell,
            speed.ratio.median,
            "x",
            section=section,
            note=f"to {speed.over}; {times(found[speed.cell])}",
        )


def share_rows(
    shares: Mapping[str, Ratio], at_least: float | None, found: Found, section: str
) -> Iterator[Row]:
    """The least of `shares` against its bound, then each with its times."""
    if len(shares) > 1:
        least = min(shares, key=lambda cell: shares[cell].median)
        what = f"least of {len(shares)}"
        yield Row(what, shares[least].median, at_least=at_least, section=section, note=least)
    for cell, share in shares.items():
        note = f"quartiles {share.low:.3f} to {share.high:.3f}; {times(found[cell])}"
        bound = at_least if len(shares) == 1 else None
        yield Row(cell, share.median, at_least=bound, section=section, note=note)


def machine_rows(answer: Answer, section: str) -> Iterator[Row]:
    """What disturbed the machine meanwhile: a figure taken on a busy machine is none."""
    what = "cores that other programs used meanwhile"
    yield Row(what, answer.others, at_most=MOST_OTHERS, section=section)
    if answer.again or answer.short:
        what = "measurements kept though the machine gave fewer cores than threads"
        note = f"for that reason {answer.again} were made again"
        yield Row(what, answer.short, at_most=0, section=section, note=note)


def time_rows(found: Found, section: str) -> Iterator[Row]:
    """Each cell's fastest call, for a run without Octavo."""
    for cell, compared in found.items():
        best = min(compared.timings.values(), key=lambda timing: timing.median)
        yield Row(cell, best.median * 1e6, "us", section=section, note=times(compared))


def times(compared: Comparison) -> str:
    """`octavo 12.3, torch fp32 45.6 us`."""
    found = (f"{name} {t.median * 1e6:.1f}" for name, t in compared.timings.items())
    return ", ".join(found) + " us"
