"""Rotary positions as one node.

    Rotary(X, cos, sin)  ->  X cos + turned(X) sin,  turned(a, b) = (-b, a)

X is [B, heads, S, D], cos and sin are [B or 1, 1, S, R]; R is even. a and b are the halves of a
row's first R elements or, `interleaved`, each two neighbours of them; the other elements stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written, attribute


@dataclass(frozen=True)
class Rotary(Operator):
    """It holds no weights."""

    OPS: ClassVar[tuple[str, ...]] = ("Rotary",)

    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    turned: int = 0
    """R; 0 is D. It is known of neighbours."""
    interleaved: bool = False

    def write(self, p: Packer) -> Written:
        attributes = {"turned": self.turned, "interleaved": int(self.interleaved)}
        return Written(self.inputs(), attributes)

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Rotary:
        interleaved = bool(attribute(node, "interleaved"))
        x, cos, sin = inputs
        return cls(x, cos, sin, attribute(node, "turned"), interleaved)
