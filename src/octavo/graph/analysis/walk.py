"""Finds the graphs of a model, and the version of its operators.

`ir.Model.graphs()` gives the same graphs, at four times the cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import onnx_ir as ir

from octavo.errors import ModelError

_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def opset_of(model: ir.Model) -> int:
    """Return the version of the standard operators that `model` imports."""
    imports = model.opset_imports
    version = imports.get("", imports.get("ai.onnx"))
    if version is None:
        raise ModelError(
            "the model imports no version of the standard ONNX operators; export it again"
        )
    return int(version)


def graphs_of(model: ir.Model) -> list[ir.Graph]:
    """Return the main graph and all subgraphs, each before those inside it, in node order."""
    found: list[ir.Graph] = []
    _add(model.graph, found)
    return found


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """Return the subgraphs that `node` holds itself."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if kind is _GRAPH:
            found.append(attribute.as_graph())
        elif kind is _GRAPHS:
            found.extend(attribute.as_graphs())
    return found


def runs_in_order(model: ir.Model) -> bool:
    """Tell whether each node comes after those whose outputs it reads, as ONNX asks."""
    return _in_order(model.graph, set())


def _add(graph: ir.Graph, found: list[ir.Graph]) -> None:
    found.append(graph)
    for node in graph:
        for body in bodies_of(node):
            _add(body, found)


def _in_order(graph: ir.Graph, before: set[ir.Node]) -> bool:
    """Tell whether every node of `graph` stands behind those that it reads.

    `before` holds all nodes that come before the graph's first; those of the graph are added.
    """
    for node in graph:
        for value in node.inputs:
            producer = None if value is None else value.producer()
            if producer is not None and producer not in before:
                return False
        if not all(_in_order(body, before) for body in bodies_of(node)):
            return False
        before.add(node)
    return True


def only_reader(value: ir.Value) -> tuple[ir.Node, int] | None:
    """Return the one node that reads `value`, in the same graph, and its input; else None."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output():
        return None
    node, index = uses[0].node, uses[0].idx
    producer = value.producer()
    if producer is None or node.graph is not producer.graph:
        return None
    return node, index


def only_inside(value: ir.Value, region: set[ir.Node]) -> bool:
    """Tell whether none but nodes of `region` read `value`."""
    return not value.is_graph_output() and all(use.node in region for use in value.uses())


class Callers:
    """Which nodes run the bodies and functions of a model, for walks against the graph.

    `nodes` are those of all graphs.
    """

    def __init__(self, model: ir.Model) -> None:
        self._functions = {(f.domain, f.name): f for f in model.functions.values()}
        self._of: defaultdict[ir.Graph, list[ir.Node]] = defaultdict(list)
        self.nodes: list[ir.Node] = []
        for graph in (model.graph, *(f.graph for f in self._functions.values())):
            self._enter(graph)

    def _enter(self, graph: ir.Graph) -> None:
        for node in graph:
            self.nodes.append(node)
            called = self._functions.get((node.domain, node.op_type))
            if called is not None:
                self._of[called.graph].append(node)
            for body in bodies_of(node):
                self._of[body].append(node)
                self._enter(body)

    def inside(self, node: ir.Node, index: int) -> Iterator[ir.Value]:
        """Yield what bodies, or the function that is called, give as output `index` of a node."""
        called = self._functions.get((node.domain, node.op_type))
        skipped = int(node.op_type == "Loop")  # its body says first whether it goes on
        for graph in [called.graph] if called is not None else bodies_of(node):
            yield from graph.outputs[index + skipped :][:1]

    def given(self, value: ir.Value) -> Iterator[ir.Value]:
        """Yield what callers pass for an input of a body or a function."""
        graph = value.graph
        if graph is None or value not in graph.inputs:
            return
        index = graph.inputs.index(value)
        for caller in self._of.get(graph, ()):
            yield from (v for v in caller.inputs[index : index + 1] if v is not None)
