"""octavo::embedding: the table as it is, rows gathered and then scaled.

integers    Mul(Sub(Cast(Gather(table, i)), Gather(zero, i)), Gather(scale, i))
16 bits     Cast(Gather(table, i))
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from octavo.graph.embedding import lookup_rows
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.program import call_of


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """The rows, float32 [..., embedding_dim]."""
    call = call_of(node)
    out = node.outputs[0].name or "rows"
    return [rows(call, call["indices"], d, name=node.name or out, out=out)]


def rows(call: dict[str, Any], indices: ir.Value, d: Drawing, *, name: str, out: str) -> ir.Value:
    """`indices` looked up in the table of `call`."""
    layer = layer_of(call["table"])

    def column(key: str) -> ir.Value | None:
        """[num_embeddings, 1]: one number a row."""
        value = call[key]
        if value is None:
            return None
        stored = d.tensor(value)
        name = f"{layer}.{key}_column"
        return d.once("column", [stored], lambda: d.constant(stored[:, None], name))

    scale = column("scale")
    if scale is None:
        held = d.emitter.op("Gather", [call["table"], indices], out=f"{out}_stored", name=name)
        return d.emitter.cast(held, ir.DataType.FLOAT, out)
    return lookup_rows(
        d.emitter,
        call["table"],
        scale,
        indices,
        name=name,
        out=out,
        zero_point=column("zero_point") or 0,
    )
