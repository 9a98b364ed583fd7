"""Attention and MatMul, whose operands are activations alone, with stock operators.

    Attention     `softmax(scale Q K^T + bias) V`, heads apart: what `rewrite.attention`
                  makes one node of. MultiHeadAttention would take no mask that broadcasts along
                  queries.
    MatMul(a, b)  MatMul in float, or FusedMatMul where it transposes b
    MatMul(a, b)  quantize_rows(a), quantize_tensor(b) ─ MatMulIntegerToFloat ─ Mul(row scale)

The last form is for layers that a recipe quantizes; a layer that a native file holds has a scale
for each column of b, which has no form in integers.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.graph.context import Context
from octavo.graph.lower.products import linear_rows
from octavo.graph.lower.rows import spread_nan
from octavo.ir import MS
from octavo.ir.activation_products import AS_IT_IS, HEADS_FIRST, REST, SIZE_OF_Q, Attention, MatMul
from octavo.ir.operator import LAYER
from octavo.ir.weight import QuantizedWeightValues

KEYS = (0, 2, 3, 1)


def lower_attention(found: Attention, node: ir.Node, c: Context) -> list[ir.Value]:
    """What the heads give, [B, S, heads * E]."""
    e, out = c.emitter, node.outputs[0].name or "attention"

    def heads(value: ir.Value, perm: tuple[int, ...], what: str) -> ir.Value:
        apart = e.op("Reshape", [value, e.vector([0, 0, found.heads, -1])], out=f"{out}_{what}")
        return e.transpose(apart, perm, f"{out}_{what}_heads")

    q, k = heads(found.q, HEADS_FIRST, "q"), heads(found.k, KEYS, "k")
    scores = e.op("MatMul", [q, k], out=f"{out}_products")
    scores = e.op("Mul", [scores, e.scalar(found.scale, np.float32)], out=f"{out}_scores")
    if found.bias is not None:
        scores = e.op("Add", [scores, found.bias], out=f"{out}_masked")
    weights = e.op("Softmax", [scores], out=f"{out}_weights", axis=-1)
    mixed = e.op("MatMul", [weights, heads(found.v, HEADS_FIRST, "v")], out=f"{out}_mixed")
    turned = e.transpose(mixed, HEADS_FIRST, f"{out}_turned")
    return [e.op("Reshape", [turned, _shape(found, out, c)], out=f"{out}_joined")]


def _shape(found: Attention, out: str, c: Context) -> ir.Value:
    """That of the result; sizes of Q are computed only where a larger mask would run otherwise."""
    e = c.emitter
    shape = [AS_IT_IS if size == SIZE_OF_Q else size for size in found.shape]
    if SIZE_OF_Q not in found.shape or REST not in found.shape:
        return e.vector(shape)
    sizes = e.op("Shape", [found.q], out=f"{out}_sizes")
    parts = [
        e.op("Gather", [sizes, e.vector([axis])], out=f"{out}_size", axis=0)
        if size == SIZE_OF_Q
        else e.vector([size])
        for axis, size in enumerate(found.shape)
    ]
    return e.op("Concat", parts, out=f"{out}_shape", axis=0)


FLOAT_PRODUCT_NOTE = (
    "a product of two activations, computed in float: target portable has one scale for columns"
)


def lower_matmul(product: MatMul, node: ir.Node, c: Context) -> list[ir.Value]:
    """The product, float32."""
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
