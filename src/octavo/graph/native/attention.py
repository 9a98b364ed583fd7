"""Attention of all heads as one node: `softmax(scale Q K^T + bias) V` in float32.

Q [B, S, heads * D], K [B, T, heads * D] and V [B, T, heads * E] lie as linear layers leave them;
bias broadcasts to [B, heads, S, T]. The result is [B, S, heads * E].
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN

OP = "Attention"


@dataclass(frozen=True)
class AttentionNode:
    """The operands of an Attention node."""

    q: ir.Value
    k: ir.Value
    v: ir.Value
    bias: ir.Value | None
    heads: int
    scale: float

    @classmethod
    def of(cls, node: ir.Node) -> AttentionNode | None:
        """What `node` is made of; None for another operator."""
        if node.domain != DOMAIN or node.op_type != OP:
            return None
        q, k, v, *rest = [i for i in node.inputs if i is not None]
        a = node.attributes
        bias = rest[0] if rest else None
        return cls(q, k, v, bias, a["heads"].as_int(), a["scale"].as_float())

    def draw(self, e: Emitter, *, name: str, out: str) -> ir.Value:
        """The node."""
        inputs = [self.q, self.k, self.v, *([] if self.bias is None else [self.bias])]
        return e.op(
            OP, inputs, out=out, name=name, domain=DOMAIN, heads=self.heads, scale=self.scale
        )
