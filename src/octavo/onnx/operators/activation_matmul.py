"""Products of two activations, when a recipe asks for them.

MatMul(a, b)             ->  MatMul(a, b)                          of domain ai.octavo
MatMul(a, Transpose(b))  ->  MatMul(a, b), transpose_b             where the last two axes swap
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from octavo.graph.lower.products import scale_output
from octavo.ir.activation_products import MatMul
from octavo.onnx.operators.operands import Operands
from octavo.onnx.operators.reader import Drawn, ReadContext
from octavo.recipe import Granularity, Scheme


def refuse(operands: Operands, scheme: Scheme, opset: int, first_with_dynamic: int) -> str | None:
    """Return why stock operators cannot hold the product, or None where they can."""
    if scheme.activation is None:
        return "a product of two activations: this recipe makes only weights smaller"
    stated = {operands.x.dtype, operands.w.dtype} - {None}  # the operands have the same type
    if stated != {ir.DataType.FLOAT}:
        return "a product of two activations whose element type the model does not state"
    if (
        operands.transpose_x
        or operands.transpose_w
        or operands.alpha != 1.0
        or operands.bias is not None
    ):
        return "a product of two activations with transposes, alpha or bias"
    if opset < first_with_dynamic:
        return f"its right operand needs DynamicQuantizeLinear; opset {opset} has none"
    return None


def refuse_native(node: ir.Node, operands: Operands) -> str | None:
    """Return why Octavo's operator cannot hold the product, or None where it can."""
    if {operands.x.dtype, operands.w.dtype} - {None} != {ir.DataType.FLOAT}:
        return "a product of two activations whose element type the model does not state"
    if any(v.shape is not None and len(v.shape) < 2 for v in (operands.x, operands.w)):
        return "a product of two activations with a vector"
    if operands.transpose_x and node.op_type != "Gemm" and operands.x.shape is None:
        return "a product of two activations, transposed, whose rank the model does not state"
    return None


def read_native(
    node: ir.Node, operands: Operands, scheme: Scheme, c: ReadContext, name: str
) -> Drawn:
    """Build the native operator, with alpha and bias behind it."""
    assert scheme.activation is not None
    notes = []
    if scheme.activation.granularity is Granularity.GROUP:
        notes.append("activations per row: products of two activations have no groups")
    e, out = c.emitter, node.outputs[0].name or name
    a, b, transposed = operands.x, operands.w, operands.transpose_w
    if operands.transpose_x:
        a = e.transpose(a, _swapped(range(_rank(a))), f"{a.name}_transposed")
    before = _before_transpose(b, node)
    if before is not None:
        source, perm = before
        b, transposed = source, not transposed
        if perm != sorted(perm):
            b = e.transpose(source, perm, f"{operands.w.name}_untransposed")
    (y,) = c.put(MatMul(a, b, transposed), name=name, outs=[out])
    if operands.alpha != 1.0:
        y = scale_output(e, y, operands.alpha, f"{out}_scaled")
    bias = operands.bias
    if bias is not None and operands.beta != 0.0:
        if operands.beta != 1.0:
            bias = scale_output(e, bias, operands.beta, f"{bias.name}_beta")
        y = e.op("Add", [y, bias], out=f"{out}_biased", name=f"{name}_bias")
    return Drawn([y], [None], notes)


def _before_transpose(value: ir.Value, node: ir.Node) -> tuple[ir.Value, list[int]] | None:
    """Return the input of a Transpose of last axes, and the order of axes without that swap."""
    producer = value.producer()
    if producer is None or producer.graph is not node.graph or producer.op_type != "Transpose":
        return None
    perm, source = producer.attributes.get("perm"), producer.inputs[0]
    if perm is None or source is None or producer.domain not in ("", "ai.onnx"):
        return None
    order = list(perm.as_ints())
    # Only where that leaves the rows of the matrices whole: the operator reads those.
    if len(order) < 2 or order[-2] != len(order) - 1:
        return None
    return source, _swapped(order)


def _swapped(axes: Any) -> list[int]:
    *lead, row, column = axes
    return [*lead, column, row]


def _rank(value: ir.Value) -> int:
    return 2 if value.shape is None else len(value.shape)  # a Gemm's, where it is not stated
