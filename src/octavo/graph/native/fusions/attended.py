"""What an attention is made of, as `attention` finds it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.native import DOMAIN
from octavo.graph.native.attention import REST, SIZE_OF_Q, AttentionNode
from octavo.graph.native.linear import GROUPED_OP, OP

HEADS_FIRST = (0, 2, 1, 3)
LAST_SWAPPED = (0, 1, 3, 2)


@dataclass(frozen=True)
class Heads:
    """A value [B, L, H*D] seen as [B, L, H, D], with the order of axes in which it is used."""

    reshape: ir.Node
    source: ir.Value
    heads: int
    depth: int
    order: tuple[int, ...]
    scale: float


@dataclass(frozen=True)
class Attention:
    """One of them: what it is made of, its mask, and the Reshape that ends it."""

    q: Heads
    k: Heads
    v: Heads
    scale: float
    bias: ir.Value | None
    last: ir.Node
    shape: tuple[int, ...]
    """What the last Reshape asks for, as `AttentionNode` has it."""

    def node(self) -> AttentionNode:
        """It as one node."""
        sources = self.q.source, self.k.source, self.v.source
        shape = self.shape
        if (
            shape[2] == REST
            and SIZE_OF_Q in shape
            and _is_read_as(self.last.outputs[0], self.v.heads * self.v.depth)
        ):
            shape = (*shape[:2], self.v.heads * self.v.depth)
        return AttentionNode(*sources, self.bias, self.q.heads, self.scale, shape)


def _is_read_as(value: ir.Value, width: int) -> bool:
    """Whether a layer reads `value` that takes no other last size than `width`."""
    layers = [use.node for use in value.uses() if use.idx == 0 and use.node.domain == DOMAIN]
    return any(
        n.op_type in (OP, GROUPED_OP) and n.attributes["K"].as_int() == width for n in layers
    )
