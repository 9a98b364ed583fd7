"""com.microsoft.FusedMatMul with a constant right operand.

FusedMatMul(x, W, alpha, transA, transB)  ->  as Gemm, without a bias
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.rule import attribute_float, attribute_int
from octavo.onnx.rules._draft import LinearForm
from octavo.onnx.rules._linear import LinearRule


class FusedMatMulRule(LinearRule):
    """`y = alpha * x' @ W'`, the last two axes of each operand swapped where asked."""

    op = "com.microsoft.FusedMatMul"

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
        )

    def refuse(self, node: ir.Node, form: LinearForm) -> str | None:
        for name in ("transBatchA", "transBatchB"):
            if attribute_int(node, name, 0):
                return f"{name} moves the batch axis, for which there is no integer operator"
        if form.transpose_x and form.x.shape is None:
            return "it transposes its input (transA), whose rank the model does not state"
        return None
