"""Operators whose operands are activations alone: they hold no weights.

    Attention(Q, K, V, [bias])  ->  `softmax(scale Q K^T + bias) V` of all heads in float32
    MatMul(A, B)  ->  A [..., M, K] times B [..., K, N], or B [..., N, K] with `transpose_b`

Q [B, S, heads * D], K [B, T, heads * D] and V [B, T, heads * E] lie as linear layers leave them;
bias and the products [B, heads, S, T] broadcast with each other, so that the result
[B, S, heads * E] may be larger than Q. `shape` says what is made of it, as the Reshape did that
ends attentions.

Rows of MatMul's A are quantized as a linear layer's input is, columns of B to int8 with one scale
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written, attribute

AS_IT_IS, REST, SIZE_OF_Q = 0, -1, -2
"""Elements of `shape`, beside numbers: the size that there is, what is left, the size of Q."""
HEADS_FIRST = (0, 2, 1, 3)
LAST_SWAPPED = (0, 1, 3, 2)
"""Orders of the axes [B, L, heads, D]."""
WHOLE = (AS_IT_IS, AS_IT_IS, REST)


@dataclass(frozen=True)
class Attention(Operator):
    """It holds no weights."""

    OPS: ClassVar[tuple[str, ...]] = ("Attention",)

    q: ir.Value
    k: ir.Value
    v: ir.Value
    bias: ir.Value | None
    heads: int
    scale: float
    shape: tuple[int, ...] = WHOLE

    def write(self, p: Packer) -> Written:
        shape = {} if self.shape == WHOLE else {"shape": list(self.shape)}
        return Written(self.inputs(), {"heads": self.heads, "scale": self.scale, **shape})

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Attention:
        q, k, v, *rest = inputs
        shape = tuple(attribute(node, "shape")) if "shape" in node.attributes else WHOLE
        bias = rest[0] if rest else None
        return cls(q, k, v, bias, attribute(node, "heads"), attribute(node, "scale"), shape)


@dataclass(frozen=True)
class MatMul(Operator):
    """`a` and `b` are float32 of rank 2 or more; their leading dimensions broadcast."""

    OPS: ClassVar[tuple[str, ...]] = ("MatMul",)

    a: ir.Value
    b: ir.Value
    transpose_b: bool = False
    per_tensor_b: bool = False
    """Stock operators get one scale for all of B, where it is not a file that has one a column."""

    def write(self, p: Packer) -> Written:
        return Written(self.inputs(), {"transpose_b": int(self.transpose_b)})

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> MatMul:
        return cls(inputs[0], inputs[1], bool(attribute(node, "transpose_b")))
