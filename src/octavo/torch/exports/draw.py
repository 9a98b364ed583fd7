"""Draws every quantized layer of a traced model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.errors import listed
from octavo.graph.emitter import MS
from octavo.graph.native import DOMAIN as OCTAVO
from octavo.graph.native import VERSION
from octavo.graph.native.fusions import fuse
from octavo.graph.native.fusions.attention import attentions_of
from octavo.graph.sweeper import Sweeper
from octavo.graph.together import put_together
from octavo.graph.walk import graphs_of
from octavo.torch.exports import (
    conv,
    embedding,
    embedding_bag,
    half_linear,
    linear,
    native,
    recurrent,
)
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.program import DOMAIN, call_of

Drawer = Callable[[ir.Node, Drawing], Outputs]

PORTABLE: Mapping[str, Drawer] = {
    "linear": linear.draw,
    "half_linear": half_linear.draw,
    "embedding": embedding.draw,
    "embedding_bag": embedding_bag.draw,
    "conv": conv.draw,
    "recurrent": recurrent.draw,
}
"""By the names of our operators."""


def _as_portable(draw: Drawer) -> Drawer:
    """`draw`, which says that target native has nothing of its own for the layer."""

    def drawn(node: ir.Node, d: Drawing) -> Outputs:
        call = call_of(node)
        d.note(layer_of(call.get("packed") or call["table"]), native.AS_PORTABLE)
        return draw(node, d)

    return drawn


DRAWERS: Mapping[str, Mapping[str, Drawer]] = {
    "portable": PORTABLE,
    "native": {
        name: native.DRAWERS.get(name) or _as_portable(draw) for name, draw in PORTABLE.items()
    },
}
"""By targets; each has all of our operators."""


def draw_all(model: ir.Model, target: str, cpu: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Replaces our operators in `model`; how many of each there were, and notes."""
    drawing, sweeper = Drawing(model, cpu), Sweeper(model)
    found = [node for graph in graphs_of(model) for node in graph if node.domain == DOMAIN]
    for node in found:
        outputs = DRAWERS[target][node.op_type](node, drawing)
        drawing.emitter.flush_before(node)
        sweeper.replace(node, outputs)
    model.opset_imports.pop(DOMAIN, None)
    if OCTAVO in drawing.emitter.domains:
        fuse(model, drawing.emitter, drawing.constants, sweeper)
    elif drawing.activations.have_rows:
        _put_together(model, drawing, sweeper)
    for domain, version in ((MS, 1), (OCTAVO, VERSION)):
        if domain in drawing.emitter.domains:
            model.opset_imports.setdefault(domain, version)
    notes = tuple(f"{text}: {listed(layers)}" for text, layers in drawing.notes.items())
    return dict(Counter(node.op_type for node in found)), notes


def _put_together(model: ir.Model, d: Drawing, sweeper: Sweeper) -> None:
    """Makes one product of those that give Q, K and V of one activation."""
    for graph in graphs_of(model):
        attentions = list(attentions_of(graph, d.constants, d.opset, None))
        put_together(attentions, d.emitter, d.constants, sweeper)
