"""Shapes that attentions compute while they run  ->  constants.

    x ─ Shape ─ Gather(0) ─ Unsqueeze ─┐
    x ─ Shape ─ Gather(1) ─ Unsqueeze ─┤
                                 H, D ─ Concat ─ Reshape(q, .)   ->   Reshape(q, [0, 0, H, D])

Where the first two sizes are those of what is reshaped, 0 copies them. At the end of the attention
they are so unless the mask has more items than the input: a Reshape keeps the number of elements,
and those runs fail there or put the heads of several items side by side. A dozen nodes a layer that
compute nothing cost a small input as much as one of its products.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.constants import Constants
from octavo.graph.emitter import Emitter
from octavo.graph.native.fusions.attention import attentions_of
from octavo.graph.sweeper import Sweeper
from octavo.graph.walk import graphs_of

Shapes = dict[ir.Node, tuple[int, ...]]


def head_shapes(model: ir.Model, constants: Constants, opset: int) -> Shapes:
    """The Reshapes of `model`'s attentions whose shapes are computed, with what they may be."""
    found: Shapes = {}
    for graph in graphs_of(model):
        for attention in attentions_of(graph, constants, opset):
            for heads in (attention.q, attention.k, attention.v):
                found[heads.reshape] = (0, 0, heads.heads, heads.depth)
            found[attention.last] = (0, 0, attention.v.heads * attention.v.depth)
    return {n: shape for n, shape in found.items() if not constants.is_constant(n.inputs[1])}


def make_constant(shapes: Shapes, e: Emitter, sweeper: Sweeper) -> list[str]:
    """Gives each Reshape that is still there its shape; returns a note on what was done."""
    count = 0
    for node, shape in shapes.items():
        computed = node.inputs[1]
        if node.graph is None or computed is None:
            continue
        node.replace_input_with(1, e.vector(shape))
        node.attributes.pop("allowzero", None)  # with it, 0 would mean no elements
        sweeper.unused(computed)
        count += 1
    return [f"{count} shapes of attentions are constants, no longer computed"] if count else []
