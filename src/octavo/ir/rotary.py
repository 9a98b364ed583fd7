"""Rotary positions as one node.

    Rotary(X, cos, sin)  ->  X cos + turned(X) sin,  turned(a, b) = (-b, a) of each row's halves

X is [B, heads, S, D], cos and sin are [B or 1, 1, S, D]; D is even.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written


@dataclass(frozen=True)
class Rotary(Operator):
    """It holds no weights."""

    OPS: ClassVar[tuple[str, ...]] = ("Rotary",)

    x: ir.Value
    cos: ir.Value
    sin: ir.Value

    def write(self, p: Packer) -> Written:
        return Written(self.inputs(), {})

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Rotary:
        return cls(*inputs)
