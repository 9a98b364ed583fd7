"""How a rule puts an operator that takes in more in the place of an old one."""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir.operator import Operator


def replace(old: ir.Node, last: ir.Node, new: Operator, c: Context) -> ir.Node:
    """`new` where `last` stands, under `old`'s name; `old` and all up to `last` go."""
    out = last.outputs[0].name or "y"
    c.names.nodes.free(old.name)
    values = c.put(new, name=old.name or out, outs=[out])
    c.replace(last, values)
    node = values[0].producer()
    assert node is not None
    return node
