"""The product of two activations as one node.

    MatMul(A, B)  ->  A [..., M, K] times B [..., K, N], or B [..., N, K] with `transpose_b`

Rows of A are quantized as a linear layer's input is, columns of B to int8 with one scale each.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN

OP = "MatMul"


def matmul(
    e: Emitter, a: ir.Value, b: ir.Value, *, transpose_b: bool, name: str, out: str
) -> ir.Value:
    """`a` and `b` float32 of rank 2 or more; their leading dimensions broadcast."""
    return e.op(OP, [a, b], out=out, name=name, domain=DOMAIN, transpose_b=int(transpose_b))
