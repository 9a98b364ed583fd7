"""Rotary positions as one node.

    Rotary(X, cos, sin, [positions])  ->  X cos + turned(X) sin,  turned(a, b) = (-b, a)

X is [B, heads, S, D], or rows [B, S, heads * D]. a and b are the halves of the first R elements of
a head's row or, `interleaved`, each two neighbours of them; R is even, the other elements stay. cos
and sin are [B or 1, 1, S, R], or have one number for each pair: [B or 1, S, R / 2], or
[count, R / 2], of which `positions` (int64 [B, S], or [1] for the first row) says the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written, attribute


@dataclass(frozen=True)
class Rotary(Operator):
    """It holds no weights."""

    OPS: ClassVar[tuple[str, ...]] = ("Rotary",)
    LEAST: ClassVar[int] = 3

    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    positions: ir.Value | None = None
    turned: int = 0
    """R; 0 is D. It is known of neighbours whose cos and sin have four axes."""
    interleaved: bool = False
    paired: bool = False
    """cos and sin have one number for each pair."""
    heads: int = 0
    """Of X; 0 where they are not known: it has four axes, or R is D."""

    def write(self, p: Packer) -> Written:
        attributes: dict[str, Any] = {"turned": self.turned, "interleaved": int(self.interleaved)}
        if self.paired:
            attributes |= {"paired": 1, "heads": self.heads}
        return Written(self.inputs(), attributes)

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Rotary:
        paired = bool(attribute(node, "paired")) if "paired" in node.attributes else False
        x, cos, sin, *rest = inputs
        return cls(
            x,
            cos,
            sin,
            rest[0] if rest else None,
            attribute(node, "turned"),
            interleaved=bool(attribute(node, "interleaved")),
            paired=paired,
            heads=attribute(node, "heads") if paired else 0,
        )
