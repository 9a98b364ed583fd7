"""Values that two graphs share, and the nodes between them.

Quantization replaces nodes and keeps the names of the values between them, so that a value of the
float model's main graph is found in the quantized one by its name. A layer's nodes in the quantized
graph are those between the shared values around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from octavo.graph.analysis.walk import opset_of
from octavo.onnx.constants import Constants

_NO_TENSORS = ("Sequence", "Optional", "SplitToSequence")
"""How operators begin whose outputs may be no tensors."""


def shared_values(floating: ir.Model, quantized: ir.Model) -> frozenset[str]:
    """Names of activations (inputs, and what nodes compute of them) of both main graphs."""
    return frozenset(_activations(floating)) & frozenset(_activations(quantized))


def _activations(model: ir.Model) -> Iterator[str]:
    constants = Constants(opset_of(model))
    for value in model.graph.inputs:
        if value.name and not value.is_initializer():
            yield value.name
    for node in model.graph:
        if node.op_type.startswith(_NO_TENSORS):
            continue
        for value in node.outputs:
            if value.name and not constants.is_constant(value):
                yield value.name


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads: its inputs, and what its subgraphs read of graphs around it."""
    yield from (v for v in node.inputs if v is not None)
    for body in bodies(node):
        for inner in body:
            yield from reads(inner)
        yield from (v for v in body.outputs if v is not None)


def nodes_in(node: ir.Node) -> Iterator[ir.Node]:
    """The node, and all nodes of its subgraphs."""
    yield node
    for body in bodies(node):
        for inner in body:
            yield from nodes_in(inner)


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """The node's subgraphs."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def holders(main: ir.Graph) -> dict[ir.Node, ir.Node]:
    """By each node, of subgraphs too, the one of the main graph that it is or lies in."""
    return {inner: node for node in main for inner in nodes_in(node)}


def region(value: ir.Value, shared: Collection[str]) -> dict[ir.Node, None]:
    """The nodes of the main graph that make `value` of shared values (and constants)."""
    found: dict[ir.Node, None] = {}
    producer = value.producer()
    main = None if producer is None else producer.graph
    stack = [producer]
    while stack:
        node = stack.pop()
        if node is None or node in found or node.graph is not main:
            continue
        found[node] = None
        stack += [v.producer() for v in reads(node) if v.name not in shared]
    return found


def next_shared(
    node: ir.Node, shared: Collection[str], held_by: Mapping[ir.Node, ir.Node]
) -> tuple[str, ...]:
    """Which of `node`'s outputs are shared; else the first shared values computed of them."""
    found = {v.name: None for v in node.outputs if v.name in shared}
    seen: set[ir.Value] = set()
    waiting = [] if found else list(node.outputs)
    for value in waiting:  # grows while it is walked
        if value.name in shared:
            found[value.name] = None
        elif value not in seen:
            seen.add(value)
            waiting += [o for use in value.uses() for o in held_by[use.node].outputs]
    return tuple(name for name in found if name)
