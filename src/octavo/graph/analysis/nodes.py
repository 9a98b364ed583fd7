"""Questions about single nodes and values that many rules ask."""

from __future__ import annotations

import onnx_ir as ir


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
