"""MatMul with a constant right operand of any rank, or of two activations when asked for.

MatMul(x, W)  ->  quantize_rows(x), MatMulIntegerToFloat, Mul by the row scale
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.rules._draft import LinearForm
from octavo.onnx.rules._linear import LinearRule


class MatMulRule(LinearRule):
    """`y = x @ W`; W [K], [K, N] or [..., K, N]."""

    op = "MatMul"

    def form(self, node: ir.Node) -> LinearForm | None:
        x, w = node.inputs[0], node.inputs[1]
        return None if x is None or w is None else LinearForm(x, w)
