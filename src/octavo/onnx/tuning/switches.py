"""Puts a switch behind layers: float or quantized is chosen when the model runs.

    x -> layer -> y -> ...     becomes     x -+-> layer ------+
                                              +-> its twin ---+-> Where(switch) -> y -> ...

The layers are then quantized by a conversion like any other, their twins stay float, and one model
answers for each set of layers what quantizing them does. A switch is a boolean input of the graph,
so that nothing can be folded; layers in subgraphs read it from outside.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from octavo.graph.emitter import Names
from octavo.onnx.plan.inventory import Site


def add_switches(model: ir.Model, sites: Iterable[Site]) -> dict[str, str]:
    """Changes `model`; returns the name of each layer's switch: True takes the layer, to be
    quantized, False its float twin."""
    names = Names(model)
    switches = {}
    for site in sites:
        switch = ir.Value(
            name=names.values.new("octavo_switch"),
            type=ir.TensorType(ir.DataType.BOOL),
            shape=ir.Shape([]),
        )
        model.graph.inputs.append(switch)
        _add_twin(site.node, switch, names)
        assert switch.name is not None
        switches[site.layer.name] = switch.name
    return switches


def _add_twin(node: ir.Node, switch: ir.Value, names: Names) -> None:
    twin = ir.Node(
        node.domain,
        node.op_type,
        list(node.inputs),
        list(node.attributes.values()),
        overload=node.overload,
        num_outputs=len(node.outputs),
        version=node.version,
        name=names.nodes.new(f"{node.name or node.op_type}_float"),
    )
    chosen = []
    for quantized, plain in zip(node.outputs, twin.outputs, strict=True):
        if not quantized.name or not (quantized.uses() or quantized.is_graph_output()):
            plain.name = ""  # nothing reads it
            continue
        result = ir.Value(name=quantized.name, type=quantized.type, shape=quantized.shape)
        quantized.replace_all_uses_with(result, replace_graph_outputs=True)
        plain.name = names.values.new(f"{result.name}_float")
        plain.type, plain.shape = quantized.type, quantized.shape
        quantized.name = names.values.new(f"{result.name}_quantized")
        chosen.append(
            ir.node(
                "Where",
                [switch, quantized, plain],
                outputs=[result],
                name=names.nodes.new(f"{result.name}_switch"),
            )
        )
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    graph.insert_after(node, [twin, *chosen])
