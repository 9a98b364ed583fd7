"""MatMul, Gemm and FusedMatMul as ai.octavo.Linear.

    MatMul(x, W)  ->  Linear(x, W packed, scale, zero point, bias)     alpha is in the scales

What follows the layer (a bias, an activation, a residual) `octavo.graph.native.fusions` takes in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.linear import scale_output
from octavo.graph.native.fusions.bias import one_row
from octavo.graph.native.linear import linear
from octavo.onnx.native.form import NativeForm
from octavo.onnx.native.packed import PackedUse, hold_packed
from octavo.onnx.rule import Context, Drawn
from octavo.onnx.rules._draft import LinearForm as Operands
from octavo.onnx.rules._draft import inputs_of, orientation, transposed_input
from octavo.onnx.rules._linear import LinearRule
from octavo.recipe import Granularity, Scheme


def reference(
    x: npt.NDArray[Any],
    q: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    zero_point: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    group: int = 0,
) -> npt.NDArray[np.float64]:
    """What the operator computes before its activation, in float64.

    x [..., K], q int8 [N, K], scale, zero_point and bias [N] -> [..., N]. Each row, or each
    `group` inputs of it, becomes uint8 over a range widened to 0. A row that holds NaN or infinity
    gives NaN.
    """
    x64 = np.asarray(x, np.float64)
    w = (q.astype(np.float64) - np.asarray(zero_point, np.float64)[:, None]) * scale[:, None]
    step = group or max(1, x64.shape[-1])
    held = np.empty_like(x64)
    with np.errstate(invalid="ignore"):
        for first in range(0, x64.shape[-1], step):
            part = x64[..., first : first + step]
            low = np.minimum(part.min(axis=-1, keepdims=True), 0.0)
            high = np.maximum(part.max(axis=-1, keepdims=True), 0.0)
            width = (high - low) / 255.0
            width = np.where(width < 1e-30, 1.0, width)
            zero = np.clip(np.rint(-low / width), 0, 255)
            q_x = np.clip(np.rint(part / width) + zero, 0, 255)
            held[..., first : first + step] = (q_x - zero) * width
    y = held @ w.T + np.asarray(bias, np.float64)
    finite = np.isfinite(x64).all(axis=-1, keepdims=True)
    return np.where(finite, y, np.nan)


class LinearForm(NativeForm):
    """One of the three operators; `rule` takes its node apart."""

    def __init__(self, rule: LinearRule) -> None:
        self._rule = rule

    def takes(self, node: ir.Node, scheme: Scheme, context: Context) -> bool:
        operands = self._operands(node)
        assert scheme.weight is not None
        if scheme.activation is None or not context.constants.is_constant(operands.w):
            return False
        rank = len(context.constants.shape(operands.w))
        return rank in (1, 2) and scheme.weight.granularity is not Granularity.BLOCK

    def announce(self, node: ir.Node, scheme: Scheme, context: Context) -> None:
        context.packed.add(use_of(node, self._operands(node), scheme, context).key)

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        operands = self._operands(node)
        shape = context.constants.shape(operands.w)
        if 0 in shape:
            return f"its weight has no elements: shape {list(shape)}"
        return self._rule.refuse(node, operands)

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        return _Draft(node, self._operands(node), scheme, context, name).draw()

    def _operands(self, node: ir.Node) -> Operands:
        operands = self._rule.form(node)
        assert operands is not None
        return operands


def use_of(node: ir.Node, operands: Operands, scheme: Scheme, context: Context) -> PackedUse:
    """W [K, N] as it is packed, [N, K]; a vector [K] is one output."""
    assert scheme.weight is not None
    root, by_outputs = orientation(operands, context.constants)
    shape = context.constants.shape(operands.w)
    k = inputs_of(shape, operands.transpose_w)
    n = 1 if len(shape) == 1 else int(np.prod(shape)) // k
    # The scales of all outputs hold alpha, as long as they stay scales.
    alpha = operands.alpha if operands.alpha > 0 else 1.0
    return PackedUse(root, n, k, by_outputs, scheme.weight, node.graph, alpha)


class _Draft:
    """One node while its form is drawn."""

    def __init__(
        self, node: ir.Node, operands: Operands, scheme: Scheme, context: Context, name: str
    ) -> None:
        self.node, self.operands, self.scheme = node, operands, scheme
        self.context, self.name, self.e = context, name, context.emitter
        self.graph = node.graph
        self.dtype = context.constants.dtype(operands.w) or ir.DataType.FLOAT
        self.shape = context.constants.shape(operands.w)
        self.out = node.outputs[0].name or name
        self.use = use_of(node, operands, scheme, context)
        self.alpha = self.use.alpha

    def draw(self) -> Drawn:
        """The nodes from x to y."""
        x = self.context.as_float32(self.operands.x, self.node, self.dtype)
        if self.operands.transpose_x:
            x = transposed_input(self.operands, x, self.e)
        weight, stats = hold_packed(self.use, self.context)
        bias, rest = self._bias(weight.n)
        group_size = (self.scheme.activation and self.scheme.activation.group) or 0
        y = linear(self.e, x, weight, bias, group_size=group_size, name=self.name, out=self.out)
        if self.alpha != self.operands.alpha:
            y = scale_output(self.e, y, self.operands.alpha, f"{self.out}_scaled")
        if len(self.shape) == 1:
            y = self.e.squeeze_last(y, f"{self.out}_squeezed")
        if rest is not None:
            y = self.e.op("Add", [y, rest], out=f"{self.out}_biased", name=f"{self.name}_bias")
        if self.dtype is not ir.DataType.FLOAT:
            y = self.context.from_float32(y, self.dtype, self.out)
        return Drawn([y], [stats])

    def _bias(self, n: int) -> tuple[ir.Value, ir.Value | None]:
        """The constant bias [N] of the operator, and what is to be added behind it."""
        bias, beta = self.operands.bias, self.operands.beta
        zeros = np.zeros(n, np.float32)
        row, rest = None, None
        if bias is not None and beta != 0.0:
            row = (
                one_row(bias, n, 2, self.context.constants)
                if self.alpha == self.operands.alpha
                else None
            )
            if row is None:
                rest = self.context.as_float32(bias, self.node, self.dtype)
                if beta != 1.0:
                    rest = scale_output(self.e, rest, beta, f"{bias.name}_beta")
        held = zeros if row is None else (row * beta).astype(np.float32)
        return self.e.constant(held, f"{self.name}_bias", self.graph), rest
