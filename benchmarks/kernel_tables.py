"""The kernel tables of one processor beside its AVX2 table: one process, tables in turn.

`python -m benchmarks.kernel_tables [--quick]`. `octavo doctor` quotes the means.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from benchmarks import ours, parts, rows, runner
from benchmarks.machine import amx_granted
from benchmarks.results import Row
from benchmarks.runner import Effort, Job
from octavo.measure.timing import Comparison, idle, interleave

AVX2 = "avx2"
MANY = 32
LEAST = {"avxvnni": 1.7, "avx512vnni256": 1.7, "avx512": 1.0}
"""Over AVX2, at MANY rows and more; a table that is not faster has no use."""
RECIPES = {"int8": (1, 128), "int4": (1, 128), "int4-128": (1, 128)}
RECIPE_WIDTH = 2048  # inputs and outputs of those
TITLE = "Linear, kernel tables over AVX2, one thread"
WEIGHTS = ((384, 1536), (768, 768), (768, 3072), (3072, 768), (2048, 2048))
GRID = tuple((m, k, n) for k, n in WEIGHTS for m in (1, 32, 128, 512))
QUICK = ((1, 768, 768), (128, 768, 768))


def sections(effort: Effort) -> Iterator[Row]:
    """The grid in int8, and a layer of each recipe."""
    cells = tuple(cell for cell in effort.cells if cell[0] == 1 or cell[0] >= MANY)
    section, answer = effort.ask(TITLE, Job("kernel_tables:in_turn", cells))
    yield from rows.machine_rows(answer, section)
    names = list(dict.fromkeys(n for found in answer.found.values() for n in found.timings))
    for name in names:
        if name == AVX2:
            continue
        each = rows.speeds(answer.found, name, [AVX2])
        many = [speed for speed in each if parts.cell_of(speed.cell)[0] >= MANY]
        one = [speed for speed in each if parts.cell_of(speed.cell)[0] == 1]
        yield rows.mean_row(f"{name}, M >= {MANY}", many, LEAST.get(name), section)
        yield rows.mean_row(f"{name}, M = 1", one, None, section)
        yield from _cell_rows(answer.found, name, section)
    section, answer = effort.ask(f"{TITLE}, by recipe", Job("kernel_tables:recipes_in_turn"))
    yield from rows.machine_rows(answer, section)
    for name in names:
        if name != AVX2:
            yield from _cell_rows(answer.found, name, section)


def _cell_rows(found: rows.Found, name: str, section: str) -> Iterator[Row]:
    for row in rows.cell_rows(found, name, [AVX2], section):
        yield replace(row, what=f"{name}, {row.what}")


def in_turn(job: Job) -> dict[str, Comparison]:
    """The same layer by every table with vectors, the fastest first."""
    measures = {}
    for (k, n), ms in parts.by_weight(job.cells):
        layer = ours.kernel(*parts.weights(n, k))
        for m in ms:
            run = layer(parts.activations(m, k))
            measures[parts.label((m, k, n))] = partial(_by_tables, run, parts.UNIT)
    return parts.in_passes(measures, -(-job.rounds // parts.UNIT))


def recipes_in_turn(job: Job) -> dict[str, Comparison]:
    """Square layers as recipes hold them."""
    found = {}
    w, bias = parts.weights(RECIPE_WIDTH, RECIPE_WIDTH)
    for recipe, ms in RECIPES.items():
        layer = ours.linear_of(recipe, w, bias)
        for m in ms:
            bound = layer(parts.activations(m, RECIPE_WIDTH))
            found[f"{recipe}, {m} row{'s' * (m > 1)}"] = _by_tables(bound.run, job.rounds)
    return found


def _by_tables(run: Callable[[], object], rounds: int) -> Comparison:
    names = [name for name in ours.isas() if name != "reference"]
    before = ours.isa()

    def settle(name: str) -> None:
        ours.use_isa(name)
        idle()

    try:
        return interleave(dict.fromkeys(names, run), rounds=rounds, settle=settle)
    finally:
        ours.use_isa(before)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("kernel_tables", __doc__).parse_args(arguments)
    effort = Effort(options.quick, QUICK if options.quick else GRID, True, amx_granted())
    runner.publish(
        *("kernel_tables", "Kernel tables of one processor"),
        {"tables": partial(sections, effort)},
        *(options, arguments),
        speeds=True,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
