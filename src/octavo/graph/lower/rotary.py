"""Rotary with stock operators.

Rotary(x, cos, sin)  ->  x cos + Concat(-second half of x, first half) sin
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir.rotary import Rotary

FIRST_WITH_COUNT = 18  # opset of Split into a number of parts; before, it is the outputs' number


def lower(rotary: Rotary, node: ir.Node, c: Context) -> list[ir.Value]:
    """The turned rows."""
    e, out, x = c.emitter, node.outputs[0].name or "rotary", rotary.x
    halves = [f"{out}_first", f"{out}_second"]
    if c.opset >= FIRST_WITH_COUNT:
        first, second = e.op_n("Split", [x], outs=halves, axis=-1, num_outputs=2)
    else:
        first, second = e.op_n("Split", [x], outs=halves, axis=-1)
    negative = e.op("Neg", [second], out=f"{out}_negative")
    turned = e.op("Concat", [negative, first], out=f"{out}_turned", axis=-1)
    kept = e.op("Mul", [x, rotary.cos], out=f"{out}_kept")
    moved = e.op("Mul", [turned, rotary.sin], out=f"{out}_moved")
    return [e.op("Add", [kept, moved], out=f"{out}_rotated")]
