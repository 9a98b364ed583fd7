"""Shapes that attentions compute while they run  ->  constants.

    x ─ Shape ─ Gather(0) ─ Unsqueeze ─┐
    x ─ Shape ─ Gather(1) ─ Unsqueeze ─┤
                                 H, D ─ Concat ─ Reshape(q, .)   ->   Reshape(q, [0, 0, H, D])

Where the first two sizes are those of what is reshaped, 0 copies them. At the end of the attention
no axis is smaller than what is asked for, and a mask, keys or values may have made one larger: then
the last axis takes in more than the width of all heads, or the Reshape fails. So there the width
has to be stated, by the shape or by the weight of the layer that reads it: what runs, runs as
before. A dozen nodes a layer that compute nothing cost a small input as much as one of its
products. Attentions are recognized by what also makes one node of them for target native.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from octavo.graph.analysis.attentions import FoundAttention
from octavo.graph.analysis.computed_shapes import sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.kept_axes import float_layer
from octavo.graph.emit.emitter import Emitter
from octavo.graph.emit.sweeper import Sweeper

Shapes = dict[ir.Node, tuple[int, ...]]


# docs/notes/onnxruntime.md: "Attentions do not compute their shapes"
def head_shapes(attentions: Sequence[FoundAttention], constants: ConstantLookup) -> Shapes:
    """Return the Reshapes of `attentions` with computed shapes, and a constant shape for each."""
    found: Shapes = {}
    for attention in attentions:
        for heads in (attention.q, attention.k, attention.v):
            found[heads.reshape] = (0, 0, heads.heads, heads.depth)
        width = attention.v.heads * attention.v.depth
        if _gives(attention.last, width, constants):
            found[attention.last] = (0, 0, width)
    return {n: shape for n, shape in found.items() if not constants.is_constant(n.inputs[1])}


def _gives(last: ir.Node, width: int, constants: ConstantLookup) -> bool:
    """Tell whether a Reshape's last axis is always `width`: by its shape, or by its reader."""
    shape = sizes(last.inputs[1], constants)
    if shape is not None and shape[-1] == width:
        return True
    for reader, index in last.outputs[0].uses():
        layer = float_layer(reader, constants) if reader.op_type == "MatMul" else None
        if layer is not None and index == 0 and reader.graph is last.graph:
            return bool(layer.constant.shape.numpy()[0] == width)
    return False


def make_constant(shapes: Shapes, e: Emitter, sweeper: Sweeper) -> list[str]:
    """Give each Reshape that is still there its shape; return a note on what was done."""
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
