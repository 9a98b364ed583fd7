"""Constants of Octavo's operators, which have to be in the graph of the node that reads them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.torch.exports.drawing import Drawing

AS_PORTABLE = "in the form of target portable: target native has no operator for it"


def held(d: Drawing, value: ir.Value, graph: ir.Graph | None) -> ir.Value:
    """`value`, which is stored, in `graph`. Raises ModelError where it is computed."""
    stored = d.tensor(value)
    if value.graph is graph and value.is_initializer():
        return value
    name = value.name or "constant"
    return d.once(("held", graph), [stored], lambda: d.constant(stored, name, graph))


def bias_of(d: Drawing, bias: ir.Value | None, n: int, layer: str, node: ir.Node) -> ir.Value:
    """A layer's bias, float32 [n]: zeros where it has none."""
    if bias is not None:
        return held(d, bias, node.graph)
    zeros = np.zeros(n, np.float32)
    return d.once(
        ("no bias", n, node.graph), [], lambda: d.constant(zeros, f"{layer}.bias", node.graph)
    )
