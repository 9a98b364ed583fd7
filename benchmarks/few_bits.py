"""Linear layers with weights of 4 bits beside those of 8: one row at memory's speed, many rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks import ours, parts, rows, runner
from benchmarks.families_aims import Aims
from benchmarks.latency import Setting
from benchmarks.peers import Bound
from benchmarks.pieces import Section
from benchmarks.results import Row, say
from benchmarks.runner import Job
from octavo.measure.timing import Comparison, Timing, idle, interleave

Shape = tuple[int, int]
INT8, INT4 = "int8", "int4"
LEAST_ONE_ROW, LEAST_OF_READ, LEAST_OF_INT8 = 1.7, 0.85, 0.85
SHAPES: tuple[Shape, ...] = ((2048, 2048), (2048, 5632), (5632, 2048), (4096, 4096))  # K, N
MANY = (128, 512)
ONE_ROW = "One row, 4-bit weights beyond the last cache"
MANY_ROWS = f"{' and '.join(map(str, MANY))} rows, 4-bit weights"


def sections(setting: Setting, shapes: Sequence[Shape]) -> dict[str, Section]:
    """By title, each of `shapes` (K, N) with one row and with many."""
    found: dict[str, Section] = {}
    for title, rows_of in ((ONE_ROW, _one_row_rows), (MANY_ROWS, _many_row_rows)):
        for k, n in shapes:
            words = f"{title}, {k} x {n}, {setting.words}"
            found[words] = partial(rows_of, words, (k, n), setting)
    return found


def _one_row_rows(section: str, shape: Shape, setting: Setting, aims: Aims) -> Iterator[Row]:
    say(section)
    job = Job("few_bits:one_row", ((1, *shape),), setting.threads, rounds=setting.rounds)
    answer = runner.run(job)
    yield from rows.machine_rows(answer, section)
    (found,) = answer.found.values()
    speed, share = found.speed(INT4, INT8), found.time(parts.READ, over=INT4)
    figures = [("speed over int8", speed, "x", LEAST_ONE_ROW)]
    if setting.threads == 1:  # the plain read has one
        figures.append(("share of a plain read's bandwidth", share, "", LEAST_OF_READ))
    for what, ratio, unit, least in figures:
        note = f"quartiles {ratio.low:.3f} to {ratio.high:.3f}; {rows.times(found)}"
        yield Row(what, ratio.median, unit, at_least=least, section=section, note=note)


def _many_row_rows(section: str, shape: Shape, setting: Setting, aims: Aims) -> Iterator[Row]:
    say(section)
    cells = tuple((m, *shape) for m in MANY)
    job = Job("few_bits:many_rows", cells, setting.threads, rounds=setting.rounds)
    answer = runner.run(job)
    yield from rows.machine_rows(answer, section)
    for cell, found in answer.found.items():
        share = found.speed(INT4, INT8)
        note = f"quartiles {share.low:.3f} to {share.high:.3f}; {rows.times(found)}"
        what = f"{cell}: share of the speed of int8"
        yield Row(what, share.median, at_least=LEAST_OF_INT8, section=section, note=note)


def one_row(job: Job) -> dict[str, Comparison]:
    """One row through as many layers as no cache holds, and a read of the 4-bit bytes."""
    found = {}
    for cell in job.cells:
        _, k, n = cell
        count = math.ceil(2 * parts.last_cache_bytes() / (k * n / 2))
        w, bias = parts.weights(n, k)
        x = parts.activations(1, k)
        calls: dict[str, Callable[[], object]] = {}
        for recipe in (INT8, INT4):
            bound = [ours.linear_of(recipe, w, bias)(x) for _ in range(count)]
            calls[recipe] = partial(_run_all, bound)
        plain = np.ones(count * ours.weight_bytes(INT4, w, bias), np.uint8)
        found[parts.label(cell)] = _beside_read(calls, plain, job.rounds)
    return found


def _run_all(bound: Sequence[Bound]) -> None:
    for layer in bound:
        layer.run()


def _beside_read(
    calls: dict[str, Callable[[], object]], plain: npt.NDArray[np.uint8], rounds: int
) -> Comparison:
    readings: list[float] = []

    def settle(call: str) -> None:
        idle()
        if call == INT4:
            readings.append(plain.nbytes / ours.read_gbps(plain) / 1e9)

    found = interleave(calls, rounds=rounds, settle=settle)
    read = Timing(tuple(readings[-rounds:]), (1.0,) * rounds)
    return Comparison({**found.timings, parts.READ: read})


def many_rows(job: Job) -> dict[str, Comparison]:
    """Both layers on the same rows."""
    found = {}
    for (k, n), ms in parts.by_weight(job.cells):
        w, bias = parts.weights(n, k)
        layers = {recipe: ours.linear_of(recipe, w, bias) for recipe in (INT8, INT4)}
        for m in ms:
            x = parts.activations(m, k)
            bound = {name: layer(x) for name, layer in layers.items()}
            found[parts.label((m, k, n))] = parts.compare(bound, job.rounds)
    return found
