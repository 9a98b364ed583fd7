"""How a rule puts a new node in the place of an old one and of what it took over."""

from __future__ import annotations

from typing import Protocol

import onnx_ir as ir

from octavo.graph.emitter import Emitter
from octavo.graph.sweeper import Sweeper


class Drawable(Protocol):
    """A node of ours, taken apart."""

    def draw(self, e: Emitter, *, name: str, out: str) -> ir.Value:
        """The node again."""


def only_reader(value: ir.Value) -> tuple[ir.Node, int] | None:
    """The one node that reads `value`, in the same graph, and at which input; else None."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output():
        return None
    node, index = uses[0].node, uses[0].idx
    producer = value.producer()
    if producer is None or node.graph is not producer.graph:
        return None
    return node, index


def replace(old: ir.Node, last: ir.Node, new: Drawable, e: Emitter, sweeper: Sweeper) -> ir.Node:
    """`new` where `last` stands, under `old`'s name; `old` and all up to `last` go."""
    out = last.outputs[0].name or "y"
    e.names.nodes.free(old.name)
    value = new.draw(e, name=old.name or out, out=out)
    e.flush_before(last)
    sweeper.replace(last, [value])
    node = value.producer()
    assert node is not None
    return node
