"""octavo::embedding as ai.octavo.Embedding.

    embedding(i, table, scale, zero_point)  ->  Embedding(i, table, scale, zero_point)

Tables of 16-bit floats, and those whose zero points are floats, keep their portable form.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from octavo.core.kernels import checksum
from octavo.graph.native.embedding import embedding
from octavo.graph.native.linear import PackedValues
from octavo.torch.exports import embedding as portable
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.native.constants import AS_PORTABLE, held
from octavo.torch.exports.program import call_of
from octavo.torch.layers.table import in_kernel
from octavo.torch.memory import array


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """The rows, float32 [..., embedding_dim]."""
    call = call_of(node)
    layer = layer_of(call["table"])
    table = d.tensor(call["table"])
    zero = None if call["zero_point"] is None else d.tensor(call["zero_point"])
    if not in_kernel(table, zero):
        d.note(layer, AS_PORTABLE)
        return portable.draw(node, d)
    scale = d.tensor(call["scale"])

    def make() -> PackedValues:
        w = held(d, call["table"], node.graph)
        moved = torch.zeros(len(table), dtype=torch.int8) if zero is None else zero.to(torch.int8)
        if table.dtype is torch.uint8:  # integers and zero points lie 128 higher
            w = d.constant((table ^ 128).view(torch.int8), f"{layer}.table", node.graph)
            moved = moved ^ -128
        return PackedValues(
            w,
            d.constant(scale, f"{layer}.scale", node.graph),
            d.constant(moved, f"{layer}.zero_point", node.graph),
            table.shape[0],
            table.shape[1],
            checksum(array(d.tensor(w).view(torch.uint8))),
        )

    values = d.once(("table", node.graph), [table, scale], make)
    out = node.outputs[0].name or "rows"
    y = embedding(
        d.emitter,
        call["indices"],
        values,
        [values.k],
        packed=False,
        name=node.name or out,
        out=out,
    )
    return [y]
