"""Attention of all heads as one node: `softmax(scale Q K^T + bias) V` in float32.

Q [B, S, heads * D], K [B, T, heads * D] and V [B, T, heads * E] lie as linear layers leave them;
bias and the products [B, heads, S, T] broadcast with each other, so that the result
[B, S, heads * E] may be larger than Q. `shape` says what is made of it, as the Reshape did that
ends attentions.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN

OP = "Attention"

AS_IT_IS, REST, SIZE_OF_Q = 0, -1, -2
"""Elements of `shape`, beside numbers: the size that there is, what is left, the size of Q."""
WHOLE = (AS_IT_IS, AS_IT_IS, REST)


@dataclass(frozen=True)
class AttentionNode:
    """The operands of an Attention node."""

    q: ir.Value
    k: ir.Value
    v: ir.Value
    bias: ir.Value | None
    heads: int
    scale: float
    shape: tuple[int, ...] = WHOLE

    @classmethod
    def of(cls, node: ir.Node) -> AttentionNode | None:
        """What `node` is made of; None for another operator."""
        if node.domain != DOMAIN or node.op_type != OP:
            return None
        q, k, v, *rest = [i for i in node.inputs if i is not None]
        a = node.attributes
        bias = rest[0] if rest else None
        shape = tuple(a["shape"].as_ints()) if "shape" in a else WHOLE
        return cls(q, k, v, bias, a["heads"].as_int(), a["scale"].as_float(), shape)

    def draw(self, e: Emitter, *, name: str, out: str) -> ir.Value:
        """The node."""
        inputs = [self.q, self.k, self.v, *([] if self.bias is None else [self.bias])]
        shape = {} if self.shape == WHOLE else {"shape": list(self.shape)}
        return e.op(
            OP,
            inputs,
            out=out,
            name=name,
            domain=DOMAIN,
            heads=self.heads,
            scale=self.scale,
            **shape,
        )
