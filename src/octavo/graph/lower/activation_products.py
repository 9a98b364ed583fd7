"""MatMul, whose operands are activations alone, with stock operators.

    MatMul(a, b)  MatMul in float, or FusedMatMul where it transposes b
    MatMul(a, b)  quantize_rows(a), quantize_tensor(b) ─ MatMulIntegerToFloat ─ Mul(row scale)

The last form is for layers that a recipe quantizes; a layer that a native file holds has a scale
for each column of b, which has no form in integers.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.context import Context
from octavo.graph.emit.rows import spread_nan
from octavo.graph.lower.products import linear_rows
from octavo.ir import MS
from octavo.ir.activation_products import MatMul
from octavo.ir.operator import LAYER
from octavo.ir.weight import QuantizedWeightValues

FLOAT_PRODUCT_NOTE = (
    "a product of two activations, computed in float: target portable has one scale for columns"
)


def lower_matmul(product: MatMul, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower a product of two activations; return it in float32."""
    e, out = c.emitter, f"{node.outputs[0].name}_product"
    if product.per_tensor_b:
        return [_quantized(product, node, c, out)]
    c.note(node.meta.get(LAYER, node.name), FLOAT_PRODUCT_NOTE)
    inputs = [product.a, product.b]
    if product.transpose_b:
        return [e.op("FusedMatMul", inputs, out=out, name=node.name, domain=MS, transB=1)]
    return [e.op("MatMul", inputs, out=out, name=node.name)]


def _quantized(product: MatMul, node: ir.Node, c: Context, out: str) -> ir.Value:
    e, a, b = c.emitter, product.a, product.b
    shape = a.shape
    width = shape[-1] if shape is not None and isinstance(shape[-1], int) else 0
    rows, columns = c.activations.per_row(a, width, node), c.activations.per_tensor(b, node)
    scale = spread_nan(e, b, columns.scale)
    w = QuantizedWeightValues(columns.q, scale, columns.zero_point)
    y = linear_rows(e, rows, w, name=node.name or "product", out=out)
    c.uniform.mark(y)
    return y
