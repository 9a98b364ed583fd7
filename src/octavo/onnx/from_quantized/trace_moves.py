"""Integers that operators move about before something reads them.

    DynamicQuantizeLinear(x) ─ Transpose ─ product    ->  Transpose(x) ─ product
    Gather(table, i) ─ Transpose ─ DequantizeLinear   ->  Gather(W, i) ─ Transpose

Such operators take floats as well: they are drawn again beside the old ones.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import onnx_ir as ir

from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.operators.reader import attributes_of

MOVES = frozenset(
    "Identity Transpose Reshape Squeeze Unsqueeze Flatten Slice Gather Expand".split()
)


def trace(q: ir.Value) -> tuple[ir.Value, tuple[ir.Node, ...]]:
    """Return what `q` was moved from, and the nodes that did it, in order."""
    moves: list[ir.Node] = []
    while True:
        node = q.producer()
        source = None if node is None or not node.inputs else node.inputs[0]
        known = node is not None and node.op_type in MOVES and node.domain in ("", "ai.onnx")
        if node is None or source is None or not known:
            return q, tuple(moves[::-1])
        moves.append(node)
        q = source


def move(x: ir.Value, moves: tuple[ir.Node, ...], t: RestoringContext) -> ir.Value:
    """Return `x` moved by `moves`, each drawn once, beside the node itself."""
    for node in moves:
        x = t.once(("moved", node.outputs[0], x), partial(_drawn, x, node, t))
    return x


def _drawn(x: ir.Value, node: ir.Node, t: RestoringContext) -> ir.Value:
    attributes: dict[str, Any] = attributes_of(node)
    out = (node.outputs[0].name or "moved").removesuffix("_quantized")
    inputs = [x, *node.inputs[1:]]
    name = (node.name or node.op_type).removesuffix("_quant")
    y = t.emitter.op(node.op_type, inputs, out=out, name=name, **attributes)
    y.type, y.shape = ir.TensorType(ir.DataType.FLOAT), node.outputs[0].shape
    t.emitter.flush_before(node)
    return y
