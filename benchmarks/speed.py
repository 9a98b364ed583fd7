"""Rows of how fast models are, and the settings of the child processes that measured it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import results
from benchmarks.ratios import geometric_mean
from benchmarks.results import Row
from benchmarks.timing import Comparison, Ratio

_NONE = Ratio(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Asked:
    """How many times as fast as `over` `of` is to be: the cells' geometric mean, and each cell."""

    of: str
    over: str
    mean: float | None = None
    each: float | None = None


@dataclass(frozen=True)
class Setting:
    """Threads and AMX of the children, and how many of them a figure is pooled from."""

    words: str
    threads: int
    amx: bool
    processes: int
    rounds: int


def settings(quick: bool, processes: int) -> Iterator[Setting]:
    """One thread and two, with AMX and without, as far as the machine has them."""
    machine = results.machine()
    modes = [True, False] if "amxint8" in machine.instruction_sets else [True]
    if quick:
        yield Setting("1 thread", 1, True, 1, 3)
        return
    for threads in (1, 2) if machine.cores > 1 else (1,):
        for amx in modes:
            words = f"{threads} thread{'s' * (threads > 1)}"
            words += "" if len(modes) == 1 else ", AMX" if amx else ", AMX refused (VNNI only)"
            count = processes if threads == 1 else min(3, processes)  # a long run as it is
            yield Setting(words, threads, amx, count, 11)


def speed_rows(
    found: Mapping[str, Comparison],
    asked: Sequence[Asked],
    section: str,
    refused: Mapping[str, str],
) -> Iterator[Row]:
    """For each of `asked` the mean and the slowest cell where there are several, then each cell.

    `refused` says why a model is missing in `found`; its figures are NaN.
    """
    for a in asked:
        each = {cell: _speed(compared, a) for cell, compared in found.items()}
        what = f"{a.of}: speed over {a.over}"
        why = "; ".join(f"{n}: {refused[n]}" for n in (a.of, a.over) if n in refused)
        several = len(each) > 1
        if several:
            mean = geometric_mean([speed.median for speed in each.values()])
            yield Row(
                f"{what}, geometric mean", mean, "x", at_least=a.mean, section=section, note=why
            )
        if several and a.each is not None:
            slowest = min(each, key=lambda cell: each[cell].median)
            least, note = each[slowest].median, why or slowest
            yield Row(f"{what}, slowest", least, "x", at_least=a.each, section=section, note=note)
        for cell, speed in each.items():
            bound = None if several else a.each
            note = why or _note(found[cell], a, speed)
            yield Row(
                f"{what}, {cell}", speed.median, "x", at_least=bound, section=section, note=note
            )


def _speed(compared: Comparison, asked: Asked) -> Ratio:
    if not {asked.of, asked.over} <= compared.timings.keys():
        return _NONE
    return compared.speed(asked.of, asked.over)


def _note(compared: Comparison, asked: Asked, speed: Ratio) -> str:
    return (
        f"{compared[asked.of].median * 1e3:.2f} ms to {compared[asked.over].median * 1e3:.2f} ms; "
        f"quartiles {speed.low:.3f} to {speed.high:.3f}"
    )
