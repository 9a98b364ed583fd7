"""Gemm with any alpha, beta, transA and transB, its B constant.

Gemm(A, B, C)  ->  [Transpose(A)], quantize_rows, MatMulIntegerToFloat (alpha in its scale),
                   Mul by the row scale, Add(beta * C)
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.rule import attribute_float, attribute_int, input_at
from octavo.onnx.rules._draft import LinearForm
from octavo.onnx.rules._linear import LinearRule


class GemmRule(LinearRule):
    """`y = alpha * A' @ B' + beta * C`, all of rank 2."""

    op = "Gemm"

    def form(self, node: ir.Node) -> LinearForm | None:
        x, w = node.inputs[0], node.inputs[1]
        if x is None or w is None:
            return None
        return LinearForm(
            x,
            w,
            transpose_x=bool(attribute_int(node, "transA", 0)),
            transpose_w=bool(attribute_int(node, "transB", 0)),
            alpha=attribute_float(node, "alpha", 1.0),
            bias=input_at(node, 2),
            beta=attribute_float(node, "beta", 1.0),
        )
