"""LSTM and GRU beside PyTorch's and ONNX Runtime's, on one thread.

`python -m benchmarks.rnn [--quick] [--only LSTM|GRU] [--peers-only]`. With AMX and without, where
the processor has AMX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from benchmarks import parts_rnn, ratios, results
from benchmarks.children import Cell, Job
from benchmarks.effort import Effort
from benchmarks.ours import OCTAVO
from benchmarks.peers_rnn import GATES, ONNX, ONNX_INT8, TORCH_INT8, Kind
from benchmarks.results import Row
from benchmarks.timing import amx_granted

# Hidden size, layers, directions, batch; the number of steps is what a section is about.
GRID = tuple(product((128, 256, 512, 1024), (1, 2), (1, 2), (1, 16)))
QUICK = ((256, 1, 1, 1), (256, 2, 2, 16))
STEPS = (50, 1)
LEAST: Mapping[Kind, Mapping[str, float]] = {
    "LSTM": {ONNX_INT8: 1.3, TORCH_INT8: 2.5},
    "GRU": {TORCH_INT8: 2.5, ONNX: 4.0},
}
NEVER_SLOWER = 1.0
A_CALL = f"a call of one step of H{parts_rnn.SMALL}"
BESIDE = "rows quantized, sums scaled and written, cells"


def rows_of(kind: Kind, effort: Effort) -> Iterator[Row]:
    """Both lengths in one child, so that each module is made once."""
    cells = tuple((*cell, steps) for cell in effort.cells for steps in STEPS)
    for section, answer in effort.settings(kind, Job(kind, cells)):
        yield from ratios.machine_rows(answer, section)
        for steps in STEPS:
            among = [parts_rnn.label(cell) for cell in cells if cell[-1] == steps]
            found = {label: answer.found[label] for label in among}
            where = f"{section}, {steps} steps" if steps > 1 else f"{section}, a single step"
            if not effort.ours:
                yield from ratios.time_rows(found, where)
                continue
            for peer, least in LEAST[kind].items():
                each = ratios.speeds(found, OCTAVO, [peer])
                asked = steps > 1
                yield ratios.mean_row(peer, each, least if asked else None, where)
                yield ratios.slowest_row(peer, each, NEVER_SLOWER if asked else None, where)
                yield from ratios.limit_rows(found, [peer], A_CALL, BESIDE, where)
            yield from ratios.cell_rows(found, OCTAVO, list(LEAST[kind]), where)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rnn", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few cells; writes no result")
    parser.add_argument("--only", choices=list(GATES), help="writes no result")
    parser.add_argument("--peers-only", action="store_true", help="writes no result")
    options = parser.parse_args(arguments)
    cells: tuple[Cell, ...] = QUICK if options.quick else GRID
    effort = Effort(options.quick, cells, not options.peers_only, amx_granted())
    rows: list[Row] = []
    for kind in [options.only] if options.only else GATES:
        rows += rows_of(kind, effort)
    found = results.result("rnn", "Recurrent layers: LSTM and GRU", rows, arguments, speeds=True)
    results.publish(found, options.quick or bool(options.only) or not effort.ours)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
