"""Causal attention of new rows to a cache and to themselves, as one node.

    CachedAttention(Q, lengths, total, [key, value], [past_key, past_value], [cos, sin],
                    [positions], [bias], [sinks])  ->  Y, present_key, present_value

It computes what com.microsoft.GroupQueryAttention does, and has its inputs and outputs: Q, key and
value lie as rows [B, S, heads * D], pasts and presents are [B, kv_heads, rows, D]. Without key and
value Q holds all three. Item b has lengths[b] + 1 keys with the new ones; where `total` (one
number) is S, nothing came before. `cos` and `sin` [positions, R / 2] turn the first R elements of
queries and new keys, at their place or at `positions` (int64 [B, S]). `bias` is [B or 1, heads or
1, S, total]. `sinks` [heads] are a score of each head that takes a share of the weights and has no
value. Values are float32, `lengths` and `total` int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written, attribute, given_inputs

OPTIONAL = (
    "key",
    "value",
    "past_key",
    "past_value",
    "cos",
    "sin",
    "positions",
    "bias",
    "sinks",
)
"""Inputs that a node may have, in order."""


@dataclass(frozen=True)
class CachedAttention(Operator):
    """It holds no weights. Query head h reads head h // (heads / kv_heads) of keys and values."""

    OPS: ClassVar[tuple[str, ...]] = ("CachedAttention",)
    LEAST: ClassVar[int] = 3

    q: ir.Value
    lengths: ir.Value
    total: ir.Value
    heads: int
    kv_heads: int
    key: ir.Value | None = None
    value: ir.Value | None = None
    past_key: ir.Value | None = None
    past_value: ir.Value | None = None
    cos: ir.Value | None = None
    sin: ir.Value | None = None
    positions: ir.Value | None = None
    bias: ir.Value | None = None
    sinks: ir.Value | None = None
    scale: float = 0.0
    """Of the products; 0: 1 / sqrt(D)."""
    softcap: float = 0.0
    window: int = 0
    """How many keys a query sees, up to its own; 0: all."""
    evicts: bool = False
    """Pasts and presents hold the rows of the window, and a few more, not all that there were."""
    interleaved: bool = False
    """Neighbours turn, not halves."""
    count: int = 3
    """Of the outputs."""

    def write(self, p: Packer) -> Written:
        attributes = {
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "scale": self.scale,
            "softcap": self.softcap,
            "window": self.window,
            "evicts": int(self.evicts),
            "interleaved": int(self.interleaved),
            "given": " ".join(n for n in OPTIONAL if getattr(self, n) is not None),
            "outputs": self.count,
        }
        return Written(self.inputs(), attributes)

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> CachedAttention:
        q, lengths, total, *rest = inputs
        given = given_inputs(node, rest, OPTIONAL)
        names = ("heads", "kv_heads", "scale", "softcap", "window")
        return cls(
            q=q,
            lengths=lengths,
            total=total,
            **given,
            **{name: attribute(node, name) for name in names},
            evicts=bool(attribute(node, "evicts")),
            interleaved=bool(attribute(node, "interleaved")),
            count=attribute(node, "outputs"),
        )
