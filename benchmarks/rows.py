"""Rows of what was measured: means, slowest cells, shares, and what a report says of weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.limits import LIMIT, PARTS
from benchmarks.ours import OCTAVO
from benchmarks.results import Row
from benchmarks.runner import Answer
from benchmarks.zoo import minilm
from octavo.measure.timing import Comparison, Ratio
from octavo.recipe import Kind
from octavo.results.report import Report

Found = Mapping[str, Comparison]
MOST_OTHERS = 0.1
COUNTED = (Kind.LINEAR, Kind.LSTM, Kind.GRU, Kind.RNN, Kind.CONV)
NO_RATIO = Ratio(math.nan, math.nan, math.nan)


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


OTHERS = "cores that other programs used meanwhile"


def machine_rows(answer: Answer, section: str) -> Iterator[Row]:
    """What disturbed the machine meanwhile: a figure taken on a busy machine is none."""
    yield Row(OTHERS, answer.others, at_most=MOST_OTHERS, section=section)
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


@dataclass(frozen=True)
class Asked:
    """How many times as fast as `over` `of` is to be: the cells' geometric mean, and each cell."""

    of: str
    over: str
    mean: float | None = None
    each: float | None = None


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
            note = why or note_of(found[cell], a.of, a.over)
            yield Row(
                f"{what}, {cell}", speed.median, "x", at_least=bound, section=section, note=note
            )


def _speed(compared: Comparison, asked: Asked) -> Ratio:
    if not {asked.of, asked.over} <= compared.timings.keys():
        return NO_RATIO
    return compared.speed(asked.of, asked.over)


def note_of(found: Comparison, of: str, over: str) -> str:
    """`1.20 ms to 3.40 ms; quartiles 2.7 to 2.9`."""
    speed = found.speed(of, over)
    return (
        f"{found[of].median * 1e3:.2f} ms to {found[over].median * 1e3:.2f} ms; "
        f"quartiles {speed.low:.3f} to {speed.high:.3f}"
    )


def error_rows(
    exact: minilm.Model,
    made: Mapping[str, minilm.Model],
    names: Sequence[str],
    what: str,
    most: Mapping[str, float],
    refused: Mapping[str, str],
    section: str,
) -> Iterator[Row]:
    """Error of the hidden states of each of `names`; `what` follows its name."""
    for name in names:
        error = minilm.hidden_state_error(exact, made[name]) if name in made else math.nan
        note = refused.get(name, "")
        yield Row(name + what, error, at_most=most.get(name), section=section, note=note)


def task_rows(
    scores: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    bounded: str,
    margin: float,
    refused: Mapping[str, str],
    section: str,
) -> Iterator[Row]:
    """Scores by task of each of `names`, float first; `bounded` is to be within the margin."""
    for task, exact in scores[names[0]].items():
        for name in names:
            score = scores[name][task] if name in scores else math.nan
            low, high = (exact - margin, exact + margin) if name == bounded else (None, None)
            note = "" if name == names[0] else f"{score - exact:+.4f} from float"
            note = refused.get(name, note)
            what = f"{task}: {name}"
            yield Row(what, score, at_least=low, at_most=high, section=section, note=note)


def int8_row(report: Report, least: float | None, section: str) -> Row:
    """How many of the bytes of MatMul, Gemm, RNN and Conv weights are held as int8.

    Grouped convolutions count too: the models that are asked for a share have none.
    """
    layers = [o for o in report.layers if o.layer.kind in COUNTED and o.layer.weights]
    left = [o for o in layers if not o.quantized]
    note = f"{len(layers) - len(left)} of {len(layers)} layers"
    note += f"; float: {', '.join(o.layer.name for o in left)}" if left else ""
    return Row(
        "share of the MatMul, Gemm, RNN and Conv weights' bytes held as int8",
        1 - sum(o.bytes_before for o in left) / sum(o.bytes_before for o in layers),
        at_least=least,
        section=section,
        note=note,
    )


def table_row(report: Report, what: str, asked: bool, section: str) -> Row:
    """How the largest layer, an embedding table, is held; `asked` is int8."""
    table = max(report.layers, key=lambda o: o.layer.bytes)
    (_, (rows, width)), *_ = table.layer.weights
    return Row(
        f"{what}: bytes an element, the rows' scales included",
        table.bytes_after / (rows * width),
        at_most=1 + 8 / width if asked else None,  # int8, and a scale and a zero point a row
        section=section,
        note=f"{table.layer.op}, {rows:,} x {width}: {table.scheme}",
    )
