"""Draws every quantized layer of a traced model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.graph.emitter import MS
from octavo.graph.sweeper import Sweeper
from octavo.graph.walk import graphs_of
from octavo.torch.exports import (
    conv,
    embedding,
    embedding_bag,
    half_linear,
    linear,
    recurrent,
)
from octavo.torch.exports.drawing import Drawing, Outputs
from octavo.torch.exports.program import DOMAIN

DRAWERS: Mapping[str, Callable[[ir.Node, Drawing], Outputs]] = {
    "linear": linear.draw,
    "half_linear": half_linear.draw,
    "embedding": embedding.draw,
    "embedding_bag": embedding_bag.draw,
    "conv": conv.draw,
    "recurrent": recurrent.draw,
}
"""By the names of our operators."""


def draw_all(model: ir.Model, cpu: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Replaces our operators in `model`; how many of each there were, and notes."""
    drawing, sweeper = Drawing(model, cpu), Sweeper(model)
    found = [node for graph in graphs_of(model) for node in graph if node.domain == DOMAIN]
    for node in found:
        outputs = DRAWERS[node.op_type](node, drawing)
        drawing.emitter.flush_before(node)
        sweeper.replace(node, outputs)
    model.opset_imports.pop(DOMAIN, None)
    if MS in drawing.emitter.domains:
        model.opset_imports.setdefault(MS, 1)
    notes = tuple(f"{text}: {', '.join(layers)}" for text, layers in drawing.notes.items())
    return dict(Counter(node.op_type for node in found)), notes
