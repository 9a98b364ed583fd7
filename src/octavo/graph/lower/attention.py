"""Attention with standard operators: `softmax(scale Q K^T + bias) V`, heads apart.

They are those that `octavo.graph.rewrite.attention` makes one node of. MultiHeadAttention
would take no mask that broadcasts along queries.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir.attention import AS_IT_IS, HEADS_FIRST, REST, SIZE_OF_Q, Attention

KEYS = (0, 2, 3, 1)


def lower(found: Attention, node: ir.Node, c: Context) -> list[ir.Value]:
    """What the heads give, [B, S, heads * E]."""
    e, out = c.emitter, node.outputs[0].name or "attention"

    def heads(value: ir.Value, perm: tuple[int, ...], what: str) -> ir.Value:
        apart = e.op("Reshape", [value, e.vector([0, 0, found.heads, -1])], out=f"{out}_{what}")
        return e.transpose(apart, perm, f"{out}_{what}_heads")

    q, k = heads(found.q, HEADS_FIRST, "q"), heads(found.k, KEYS, "k")
    scores = e.op("MatMul", [q, k], out=f"{out}_products")
    scores = e.op("Mul", [scores, e.scalar(found.scale, np.float32)], out=f"{out}_scores")
    if found.bias is not None:
        scores = e.op("Add", [scores, found.bias], out=f"{out}_masked")
    weights = e.op("Softmax", [scores], out=f"{out}_weights", axis=-1)
    mixed = e.op("MatMul", [weights, heads(found.v, HEADS_FIRST, "v")], out=f"{out}_mixed")
    turned = e.transpose(mixed, HEADS_FIRST, f"{out}_turned")
    return [e.op("Reshape", [turned, _shape(found, out, c)], out=f"{out}_joined")]


def _shape(found: Attention, out: str, c: Context) -> ir.Value:
    """That of the result; sizes of Q are computed only where a larger mask would run otherwise."""
    e = c.emitter
    shape = [AS_IT_IS if size == SIZE_OF_Q else size for size in found.shape]
    if SIZE_OF_Q not in found.shape or REST not in found.shape:
        return e.vector(shape)
    sizes = e.op("Shape", [found.q], out=f"{out}_sizes")
    parts = [
        e.op("Gather", [sizes, e.vector([axis])], out=f"{out}_size", axis=0)
        if size == SIZE_OF_Q
        else e.vector([size])
        for axis, size in enumerate(found.shape)
    ]
    return e.op("Concat", parts, out=f"{out}_shape", axis=0)
