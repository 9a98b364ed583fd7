"""What the children of `benchmarks.rnn` measure: LSTM and GRU, Octavo's and the peers'.

A cell is (hidden size, layers, directions, batch, steps).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import ours, peers_rnn
from benchmarks.children import Cell, Job
from benchmarks.ours import OCTAVO
from benchmarks.parts import activations, compare
from benchmarks.peers_rnn import Kind, Rnn
from benchmarks.timing import Comparison


def label(cell: Cell, kind: Kind = "LSTM") -> str:
    """`H256 x2 bidirectional, batch 16, 50 steps`."""
    hidden, layers, ways, batch, steps = cell
    return f"{Rnn(kind, hidden, layers, ways == 2).label}, batch {batch}, {steps} steps"


def recurrent(kind: Kind, job: Job) -> dict[str, Comparison]:
    """Each module is made once, and called with all of its cells' inputs."""
    found = {}
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
            found[label(cell)] = compare(bound, job.rounds)
    return found


PARTS: dict[str, Callable[[Job], dict[str, Comparison]]] = {
    kind: partial(recurrent, kind) for kind in peers_rnn.GATES
}
