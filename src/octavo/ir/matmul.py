"""The product of two activations as one node.

    MatMul(A, B)  ->  A [..., M, K] times B [..., K, N], or B [..., N, K] with `transpose_b`

Rows of A are quantized as a linear layer's input is, columns of B to int8 with one scale each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written, attribute


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
