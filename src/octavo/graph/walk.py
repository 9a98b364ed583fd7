"""Finds the graphs of a model, and the version of its operators.

`ir.Model.graphs()` gives the same graphs, at four times the cost.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.errors import ModelError

_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def opset_of(model: ir.Model) -> int:
    """The version of the standard operators."""
    imports = model.opset_imports
    version = imports.get("", imports.get("ai.onnx"))
    if version is None:
        raise ModelError(
            "the model imports no version of the standard ONNX operators; export it again"
        )
    return int(version)


def graphs_of(model: ir.Model) -> list[ir.Graph]:
    """The main graph and all subgraphs, each before those inside it, in the order of its nodes."""
    found: list[ir.Graph] = []
    _add(model.graph, found)
    return found


def _add(graph: ir.Graph, found: list[ir.Graph]) -> None:
    found.append(graph)
    for node in graph:
        for attribute in node.attributes.data.values():
            kind = attribute.type
            if kind is _GRAPH:
                _add(attribute.as_graph(), found)
            elif kind is _GRAPHS:
                for body in attribute.as_graphs():
                    _add(body, found)
