"""What the children of `benchmarks.rnn` measure: LSTM and GRU, Octavo's and the peers'.

A cell is (hidden size, layers, directions, batch, steps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import limits, ours, peers_rnn
from benchmarks.children import Cell, Job
from benchmarks.ours import OCTAVO, Part
from benchmarks.parts import activations, compare
from benchmarks.peers import Bound
from benchmarks.peers_rnn import GATES, Kind, Rnn
from benchmarks.timing import Comparison

SMALL = 16  # hidden size of the layer that a call's cost is of
CELLS: dict[Kind, Part] = {"LSTM": Part.LSTM_CELLS, "GRU": Part.GRU_CELLS}


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


PARTS: dict[str, Callable[[Job], dict[str, Comparison]]] = {
    kind: partial(recurrent, kind) for kind in peers_rnn.GATES
}
