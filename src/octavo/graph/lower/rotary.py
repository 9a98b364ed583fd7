"""Rotary with stock operators.

Rotary(x, cos, sin)  ->  x cos + Concat(-second half of x, first half) sin
Rotary(x, cos, sin) with a number for each pair  ->  RotaryEmbedding, com.microsoft's or opset 23's

Of neighbours, a Gather takes each other's place and a product the signs. Elements behind those that
turn are joined again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir import MS
from octavo.ir.rotary import Rotary

END = 2**63 - 1
FIRST_WITH_COUNT = 18  # opset of Split into a number of parts; before, it is the outputs' number


def lower(rotary: Rotary, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower a Rotary node; return the rotated rows."""
    e, out, x = c.emitter, node.outputs[0].name or "rotary", rotary.x
    if rotary.paired:
        return [_named(rotary, out, c)]
    rest: list[ir.Value] = []
    if rotary.turned and (x.shape is None or x.shape[-1] != rotary.turned):
        starts, ends = ([0], [rotary.turned]), ([rotary.turned], [END])
        x, *rest = (
            e.op("Slice", [rotary.x, *map(e.vector, (*place, [-1]))], out=f"{out}_{what}")
            for place, what in ((starts, "turning"), (ends, "staying"))
        )
    turned = _neighbours(x, rotary, out, c) if rotary.interleaved else _halves(x, out, c)
    kept = e.op("Mul", [x, rotary.cos], out=f"{out}_kept")
    moved = e.op("Mul", [turned, rotary.sin], out=f"{out}_moved")
    rotated = e.op("Add", [kept, moved], out=f"{out}_rotated")
    if not rest:
        return [rotated]
    return [e.op("Concat", [rotated, *rest], out=f"{out}_joined", axis=-1)]


def _named(rotary: Rotary, out: str, c: Context) -> ir.Value:
    stated: dict[str, Any] = {"interleaved": int(rotary.interleaved)}
    if rotary.heads:
        stated |= {"num_heads": rotary.heads, "rotary_embedding_dim": rotary.turned}
    tables = [rotary.cos, rotary.sin]
    if rotary.positions is None:
        return c.emitter.op("RotaryEmbedding", [rotary.x, *tables], out=out, **stated)
    inputs = [rotary.x, rotary.positions, *tables]
    return c.emitter.op("RotaryEmbedding", inputs, out=out, domain=MS, **stated)


def _neighbours(x: ir.Value, rotary: Rotary, out: str, c: Context) -> ir.Value:
    e, places = c.emitter, np.arange(rotary.turned)
    signs = np.where(places % 2, 1, -1).astype(np.float32)
    other = e.op(
        "Gather", [x, e.constant(places ^ 1, f"{out}_places")], out=f"{out}_other", axis=-1
    )
    return e.op("Mul", [other, e.constant(signs, f"{out}_signs")], out=f"{out}_turned")


def _halves(x: ir.Value, out: str, c: Context) -> ir.Value:
    e = c.emitter
    halves = [f"{out}_first", f"{out}_second"]
    if c.opset >= FIRST_WITH_COUNT:
        first, second = e.op_n("Split", [x], outs=halves, axis=-1, num_outputs=2)
    else:
        first, second = e.op_n("Split", [x], outs=halves, axis=-1)
    negative = e.op("Neg", [second], out=f"{out}_negative")
    return e.op("Concat", [negative, first], out=f"{out}_turned", axis=-1)
