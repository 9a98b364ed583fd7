"""LSTM and GRU beside PyTorch's and ONNX Runtime's, on one thread.

`python -m benchmarks.rnn [--quick] [--only LSTM|GRU] [--peers-only]`. With AMX and without, where
the processor has AMX. A cell is (hidden size, layers, directions, batch, steps).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from benchmarks import limits, ours, peers_rnn, rows, runner
from benchmarks.machine import amx_granted
from benchmarks.ours import OCTAVO, Part
from benchmarks.parts import activations, compare
from benchmarks.peers import Bound
from benchmarks.peers_rnn import GATES, ONNX, ONNX_INT8, TORCH_INT8, Kind, Rnn
from benchmarks.results import Row
from benchmarks.runner import Cell, Effort, Job, Rows
from octavo.measure.timing import Comparison

# Hidden size, layers, directions, batch; the number of steps is what a section is about.
GRID = tuple(product((128, 256, 512, 1024), (1, 2), (1, 2), (1, 16)))
QUICK = ((256, 1, 1, 1), (256, 2, 2, 16))
STEPS = (50, 1)
LEAST: Mapping[Kind, Mapping[str, float]] = {
    "LSTM": {ONNX_INT8: 1.3, TORCH_INT8: 2.5},
    "GRU": {TORCH_INT8: 2.5, ONNX: 4.0},
}
NEVER_SLOWER = 1.0
SMALL = 16  # hidden size of the layer that a call's cost is of
CELLS: dict[Kind, Part] = {"LSTM": Part.LSTM_CELLS, "GRU": Part.GRU_CELLS}
A_CALL = f"a call of one step of H{SMALL}"
BESIDE = "rows quantized, sums scaled and written, cells"


def rows_of(kind: Kind, effort: Effort) -> Iterator[Row]:
    """Both lengths in one child, so that each module is made once."""
    cells = tuple((*cell, steps) for cell in effort.cells for steps in STEPS)
    for section, answer in effort.settings(kind, Job(f"rnn:{kind.lower()}", cells)):
        yield from rows.machine_rows(answer, section)
        for steps in STEPS:
            among = [label(cell) for cell in cells if cell[-1] == steps]
            found = {name: answer.found[name] for name in among}
            where = f"{section}, {steps} steps" if steps > 1 else f"{section}, a single step"
            if not effort.ours:
                yield from rows.time_rows(found, where)
                continue
            for peer, least in LEAST[kind].items():
                each = rows.speeds(found, OCTAVO, [peer])
                asked = steps > 1
                yield rows.mean_row(peer, each, least if asked else None, where)
                yield rows.slowest_row(peer, each, NEVER_SLOWER if asked else None, where)
                yield from rows.limit_rows(found, [peer], A_CALL, BESIDE, where)
            yield from rows.cell_rows(found, OCTAVO, list(LEAST[kind]), where)


def label(cell: Cell, kind: Kind = "LSTM") -> str:
    """`H256 x2 bidirectional, batch 16, 50 steps`."""
    hidden, layers, ways, batch, steps = cell
    return f"{Rnn(kind, hidden, layers, ways == 2).label}, batch {batch}, {steps} steps"


def recurrent(kind: Kind, job: Job) -> dict[str, Comparison]:
    """Each module is made once, and called with all of its cells' inputs."""
    found = {}
    call = _call(kind) if job.ours else None
    for shape in dict.fromkeys(cell[:3] for cell in job.cells):
        hidden, layers, ways = shape
        rnn = Rnn(kind, hidden, layers, ways == 2)
        weights = rnn.weights()
        made = {OCTAVO: ours.recurrent(rnn, weights)} if job.ours else {}
        for name, peer in peers_rnn.peers(rnn, weights).items():
            made[name] = peer(job.threads)
        for cell in (cell for cell in job.cells if cell[:3] == shape):
            batch, steps = cell[3:]
            x = activations(steps, batch, hidden)
            bound = {name: layer(x) for name, layer in made.items()}
            if call:
                compared = compare({**bound, limits.CALL: call}, job.rounds)
                found[label(cell)] = limits.limited(
                    compared, products(kind, cell), others(kind, cell)
                )
            else:
                found[label(cell)] = compare(bound, job.rounds)
    return found


def _call(kind: Kind) -> Bound:
    rnn = Rnn(kind, SMALL)
    return ours.recurrent(rnn, rnn.weights())(activations(1, 1, SMALL))


def products(kind: Kind, cell: Cell) -> Iterator[float]:
    """Seconds of all of a module's: the inputs of all steps at once, then the state of each."""
    for width, hidden, batch, steps in _ways(cell):
        columns = GATES[kind] * hidden
        yield limits.product(steps * batch, width, columns)
        yield steps * limits.product(batch, hidden, columns)


def others(kind: Kind, cell: Cell) -> Iterator[float]:
    """Seconds of what a module does beside them."""
    for width, hidden, batch, steps in _ways(cell):
        columns = GATES[kind] * hidden
        # A step's inputs at a time, as they are made: more of them would not lie in a cache.
        yield steps * limits.beside(batch, width, columns)
        yield steps * limits.beside(batch, hidden, columns)
        yield steps * limits.part_seconds(CELLS[kind], batch, hidden)


def _ways(cell: Cell) -> Iterator[tuple[int, int, int, int]]:
    """Inputs, hidden size, batch and steps of every direction of every layer."""
    hidden, layers, ways, batch, steps = cell
    for layer in range(layers):
        for _ in range(ways):
            yield hidden * (ways if layer else 1), hidden, batch, steps


lstm, gru = partial(recurrent, "LSTM"), partial(recurrent, "GRU")
"""What children measure."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = runner.parser("rnn", __doc__)
    parser.add_argument("--peers-only", action="store_true", help="writes no result")
    options = parser.parse_args(arguments)
    cells: tuple[Cell, ...] = QUICK if options.quick else GRID
    effort = Effort(options.quick, cells, not options.peers_only, amx_granted())
    sections: dict[str, Rows] = {kind: partial(rows_of, kind, effort) for kind in GATES}
    title = "Recurrent layers: LSTM and GRU"
    partly = options.peers_only
    runner.publish("rnn", title, sections, options, arguments, speeds=True, partial=partly)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
