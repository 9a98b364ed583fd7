"""Linear layers with weights of 4 bits beside those of 8: one row at memory's speed, many rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks import ours, parts, rows
from benchmarks.peers import Bound
from benchmarks.results import Row
from benchmarks.runner import Effort, Job
from octavo.measure.timing import Comparison, Timing, idle, interleave

INT8, INT4 = "int8", "int4"
LEAST_ONE_ROW, LEAST_OF_READ, LEAST_OF_INT8 = 1.7, 0.85, 0.85
SHAPES = ((2048, 2048), (2048, 5632), (5632, 2048), (4096, 4096))  # K, N
MANY = (128, 512)
ONE_ROW = "Linear, 4-bit weights beyond the last cache, one row"
MANY_ROWS = "Linear, 4-bit weights, share of the speed of int8"


def sections(effort: Effort) -> Iterator[Row]:
    """All of it, on one thread and on two."""
    for threads in (1, 2):
        yield from _one_row_rows(effort, threads)
        yield from _many_row_rows(effort, threads)


def _one_row_rows(effort: Effort, threads: int) -> Iterator[Row]:
    cells = tuple((1, k, n) for k, n in (SHAPES[-1:] if effort.quick else SHAPES))
    job = Job("few_bits:one_row", cells, threads)
    for section, answer in effort.settings(ONE_ROW, job):
        yield from rows.machine_rows(answer, section)
        for cell, found in answer.found.items():
            speed, share = found.speed(INT4, INT8), found.time(parts.READ, over=INT4)
            figures = [("speed over int8", speed, "x", LEAST_ONE_ROW)]
            if threads == 1:  # the plain read has one
                figures.append(("share of a plain read's bandwidth", share, "", LEAST_OF_READ))
            for what, ratio, unit, least in figures:
                note = f"quartiles {ratio.low:.3f} to {ratio.high:.3f}; {rows.times(found)}"
                yield Row(
                    f"{cell}: {what}",
                    ratio.median,
                    unit,
                    at_least=least,
                    section=section,
                    note=note,
                )


def _many_row_rows(effort: Effort, threads: int) -> Iterator[Row]:
    shapes = SHAPES[:1] if effort.quick else SHAPES
    job = Job("few_bits:many_rows", tuple((m, k, n) for m in MANY for k, n in shapes), threads)
    for section, answer in effort.settings(MANY_ROWS, job):
        yield from rows.machine_rows(answer, section)
        shares = {cell: found.speed(INT4, INT8) for cell, found in answer.found.items()}
        yield from rows.share_rows(shares, LEAST_OF_INT8, answer.found, section)


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
