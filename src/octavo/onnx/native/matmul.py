"""MatMul, Gemm and FusedMatMul: linear layers, or (when asked for) products of two activations.

MatMul(a, b)             ->  MatMul(a, b)                          of domain ai.octavo
MatMul(a, Transpose(b))  ->  MatMul(a, b), transpose_b             where the last two axes swap
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.linear import scale_output
from octavo.graph.native.matmul import matmul
from octavo.onnx.native.form import NativeForm
from octavo.onnx.native.linear import LinearForm
from octavo.onnx.rule import Context, Drawn
from octavo.onnx.rules._draft import LinearForm as Operands
from octavo.onnx.rules._linear import LinearRule
from octavo.recipe import Granularity, Scheme


def reference(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What the operator computes, in float64: a [..., M, K], b [..., K, N] -> [..., M, N].

    Each row of `a` becomes uint8 over a range widened to 0, each column of `b` int8 around 0. A
    row or column that holds NaN or infinity gives NaN.
    """
    a64, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore"):
        low = a64.min(axis=-1, keepdims=True, initial=0.0)
        width = (a64.max(axis=-1, keepdims=True, initial=0.0) - low) / 255.0
        width = np.where(width < 1e-30, 1.0, width)
        zero = np.clip(np.rint(-low / width), 0, 255)
        rows = (np.clip(np.rint(a64 / width) + zero, 0, 255) - zero) * width
        step = np.abs(b64).max(axis=-2, keepdims=True, initial=0.0) / 127.0
        step = np.where(step < 1e-30, 1.0, step)
        y = np.matmul(rows, np.clip(np.rint(b64 / step), -127, 127) * step)
    good_rows = np.isfinite(a64).all(axis=-1, keepdims=True)
    good_columns = np.isfinite(b64).all(axis=-2, keepdims=True)
    return np.where(good_rows & good_columns, y, np.nan)


class ProductForm(NativeForm):
    """A linear layer where the right operand is constant, else a product of two activations."""

    def __init__(self, rule: LinearRule) -> None:
        self._rule = rule
        self._linear = LinearForm(rule)

    def takes(self, node: ir.Node, scheme: Scheme, context: Context) -> bool:
        if self._of_activations(node, context):
            return scheme.activation is not None
        return self._linear.takes(node, scheme, context)

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        if not self._of_activations(node, context):
            return self._linear.check(node, scheme, context)
        operands = self._operands(node)
        if {operands.x.dtype, operands.w.dtype} - {None} != {ir.DataType.FLOAT}:
            return "a product of two activations whose element type the model does not state"
        if any(v.shape is not None and len(v.shape) < 2 for v in (operands.x, operands.w)):
            return "a product of two activations with a vector"
        if operands.transpose_x and node.op_type != "Gemm" and operands.x.shape is None:
            return "a product of two activations, transposed, whose rank the model does not state"
        return self._rule.refuse(node, operands)

    def announce(self, node: ir.Node, scheme: Scheme, context: Context) -> None:
        if not self._of_activations(node, context):
            self._linear.announce(node, scheme, context)

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        if not self._of_activations(node, context):
            return self._linear.rewrite(node, scheme, context, name)
        assert scheme.activation is not None
        notes = []
        if scheme.activation.granularity is Granularity.GROUP:
            notes.append("activations per row: products of two activations have no groups")
        return replace(_draw(node, self._operands(node), context, name), notes=notes)

    def _of_activations(self, node: ir.Node, context: Context) -> bool:
        operands = self._operands(node)
        constants = context.constants
        return not constants.is_constant(operands.w) and not constants.is_constant(operands.x)

    def _operands(self, node: ir.Node) -> Operands:
        operands = self._rule.form(node)
        assert operands is not None
        return operands


def _draw(node: ir.Node, operands: Operands, context: Context, name: str) -> Drawn:
    e, out = context.emitter, node.outputs[0].name or name
    a, b, transposed = operands.x, operands.w, operands.transpose_w
    if operands.transpose_x:
        a = e.transpose(a, _swapped(range(_rank(a))), f"{a.name}_transposed")
    before = _before_transpose(b, node)
    if before is not None:
        source, perm = before
        b, transposed = source, not transposed
        if perm != sorted(perm):
            b = e.transpose(source, perm, f"{operands.w.name}_untransposed")
    y = matmul(e, a, b, transpose_b=transposed, name=name, out=out)
    if operands.alpha != 1.0:
        y = scale_output(e, y, operands.alpha, f"{out}_scaled")
    bias = operands.bias
    if bias is not None and operands.beta != 0.0:
        if operands.beta != 1.0:
            bias = scale_output(e, bias, operands.beta, f"{bias.name}_beta")
        y = e.op("Add", [y, bias], out=f"{out}_biased", name=f"{name}_bias")
    return Drawn([y], [None])


def _before_transpose(value: ir.Value, node: ir.Node) -> tuple[ir.Value, list[int]] | None:
    """What a Transpose of `value`'s last axes reads, and the axes' order but for that swap."""
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
