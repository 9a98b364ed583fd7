"""Draws the quantized form of one MatMul, Gemm or FusedMatMul: see `_linear`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.graph.bias_gelu import keep_apart
from octavo.graph.emitter import Emitter
from octavo.graph.linear import (
    QuantizedWeightValues,
    dequantize,
    linear_block,
    linear_per_tensor,
    linear_rows,
    qdq_activation,
    scale_output,
)
from octavo.graph.rows import spread_nan
from octavo.onnx.constants import Constants, Root
from octavo.onnx.rule import Context, Drawn
from octavo.onnx.weights import Stats
from octavo.recipe import Granularity, Scheme, WeightScheme

FIRST_WITH_AXIS = 13  # opset of DequantizeLinear with one scale a channel


@dataclass(frozen=True)
class LinearForm:
    """The operands of a linear operator; W is `w`, or its last two axes swapped."""

    x: ir.Value
    w: ir.Value
    transpose_x: bool = False
    transpose_w: bool = False
    alpha: float = 1.0
    bias: ir.Value | None = None
    beta: float = 1.0


def per_row(scheme: Scheme, context: Context) -> bool:
    """Whether activations get a scale for each row."""
    a = scheme.activation
    return a is not None and a.granularity is not Granularity.TENSOR and not context.qdq


class Draft:
    """One linear node while its quantized form is drawn."""

    def __init__(
        self,
        node: ir.Node,
        form: LinearForm,
        scheme: Scheme,
        context: Context,
        name: str,
    ) -> None:
        self.node, self.form, self.context, self.name = node, form, context, name
        self.e = context.emitter
        self.constant_w = context.constants.is_constant(form.w)
        dtype = context.constants.dtype(form.w) if self.constant_w else form.x.dtype
        self.dtype = dtype or ir.DataType.FLOAT
        self.out = node.outputs[0].name or name
        self.notes: list[str] = []
        self.stats: Stats | None = None
        self.rank = len(context.constants.shape(form.w)) if self.constant_w else 2
        self.weight = held_weight(scheme, self.rank, context)
        self.scheme = replace(scheme, weight=self.weight)

    def draw(self) -> Drawn:
        """The nodes from x to y, in the form that the scheme asks for."""
        x = self.context.as_float32(self.form.x, self.node, self.dtype)
        if self.form.transpose_x:
            x = transposed_input(self.form, x, self.e)
        steps = [self._scaled, self._squeezed, self._biased, self._typed]
        todo = [step for step in steps if step(None, "") is not None]
        y = self._product(x, self.out if not todo else f"{self.out}_product")
        if self._is_per_row() and self.rank > 1:
            self.context.uniform.mark(y)
        for i, step in enumerate(todo):
            y_next = step(y, self.out if i == len(todo) - 1 else f"{self.out}_{i}")
            assert y_next is not None
            y = y_next
        if self._is_per_row():
            keep_apart(self.node.outputs[0], self.context.constants)
        return Drawn([y], [self.stats], self.notes)

    def _is_per_row(self) -> bool:
        return per_row(self.scheme, self.context)

    def _product(self, x: ir.Value, out: str) -> ir.Value:
        if self.weight.granularity is Granularity.BLOCK:
            return self._blocks(x, out)
        if not self.constant_w:
            return self._activations(x, out)
        if self.context.qdq or self.scheme.activation is None:
            return self._dequantized(x, out)
        w = self._weight()
        width = inputs_of(self.context.constants.shape(self.form.w), self.form.transpose_w)
        rows = self.context.activation(x, width, self.node, self.scheme)
        if rows.row_scale is None:
            return linear_per_tensor(self.e, rows, w, name=self.name, out=out)
        if self.form.alpha != 1.0:
            rows = replace(rows, scale=self._times_alpha(rows.scale))
        return linear_rows(self.e, rows, w, name=self.name, out=out)

    def _weight(self) -> QuantizedWeightValues:
        if self.rank != 2:
            return self._odd_rank()
        store = self.context.weights
        root, transposed = orientation(self.form, self.context.constants)
        axis = 0 if transposed else 1
        w, self.stats = store.matrix(root, axis, transposed=transposed)
        self.notes += store.compromise(root, self.weight)
        return w

    def _odd_rank(self) -> QuantizedWeightValues:
        """A vector [K] as [K, 1], or batched matrices [..., K, N]."""
        root = self.context.constants.root(self.form.w)
        per_channel = self.weight.granularity is Granularity.CHANNEL
        shapes: list[tuple[int, ...]] = []

        def make() -> tuple[npt.NDArray[np.float32], int | None]:
            array = self.context.weights.float32(self.form.w)
            matrix = array[:, None] if array.ndim == 1 else array
            if self.form.transpose_w and array.ndim > 1:
                matrix = np.swapaxes(matrix, -1, -2)
            shapes.append(matrix.shape)
            columns = np.ascontiguousarray(np.swapaxes(matrix, -1, -2))
            self.context.constants.release(self.form.w)
            return columns.reshape(-1, matrix.shape[-2]), 0 if per_channel else None

        def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
            *batch, inputs, outputs = shapes[0]
            q = np.swapaxes(w.q.reshape(*batch, outputs, inputs), -1, -2)
            shape = (*batch, 1, outputs) if batch else (outputs,)
            scale, zero = w.qparams.scale, w.qparams.zero_point.astype(w.q.dtype)
            shape = shape if per_channel else ()
            return np.ascontiguousarray(q), scale.reshape(shape), zero.reshape(shape)

        key = ("odd", root.key, root.transposed, self.form.transpose_w)
        w, self.stats = self.context.weights.custom(
            key, self.form.w.name or "weight", make, finish, self.weight
        )
        return w

    def _activations(self, x: ir.Value, out: str) -> ir.Value:
        shape = self.form.x.shape
        width = shape[-1] if shape is not None and isinstance(shape[-1], int) else 0
        tensor = replace(self.scheme, activation=_per_tensor(self.scheme))
        if self.context.qdq:
            a, b = self._through_integers(x), self._through_integers(self.form.w)
            return self.e.op("MatMul", [a, b], out=out, name=self.name)
        a_rows = self.context.activation(x, width, self.node, self.scheme)
        b_rows = self.context.activation(self.form.w, 0, self.node, tensor)
        if a_rows.row_scale is None:
            w = QuantizedWeightValues(b_rows.q, b_rows.scale, b_rows.zero_point)
            return linear_per_tensor(self.e, a_rows, w, name=self.name, out=out)
        scale = spread_nan(self.e, self.form.w, b_rows.scale)
        w = QuantizedWeightValues(b_rows.q, scale, b_rows.zero_point)
        return linear_rows(self.e, a_rows, w, name=self.name, out=out)

    def _dequantized(self, x: ir.Value, out: str) -> ir.Value:
        w = self._weight()
        per_channel = w.scale.shape is not None and len(w.scale.shape) > 0
        matrix = dequantize(self.e, w, out=f"{out}_weight", axis=1 if per_channel else None)
        if self.scheme.activation is not None:
            x = self._through_integers(x)
        return self.e.op("MatMul", [x, matrix], out=out, name=self.name)

    def _through_integers(self, x: ir.Value) -> ir.Value:
        return qdq_activation(self.e, x, self.context.activations.per_tensor(x, self.node))

    def _blocks(self, x: ir.Value, out: str) -> ir.Value:
        assert self.weight.block is not None
        root, transposed = orientation(self.form, self.context.constants)
        w, self.stats = self.context.weights.blocks(
            root, transposed=transposed, block=self.weight.block
        )
        return linear_block(self.e, x, w, name=self.name, out=out)

    def _alpha_pending(self) -> bool:
        folded = self._is_per_row() and self.constant_w
        return self.form.alpha != 1.0 and not folded

    def _times_alpha(self, scale: ir.Value) -> ir.Value:
        tensor = scale.const_value
        assert tensor is not None
        return self.e.scalar(np.float32(tensor.numpy()) * np.float32(self.form.alpha), np.float32)

    def _scaled(self, y: ir.Value | None, out: str) -> Any:
        if not self._alpha_pending():
            return None
        return True if y is None else scale_output(self.e, y, self.form.alpha, out)

    def _squeezed(self, y: ir.Value | None, out: str) -> Any:
        if self.rank != 1:
            return None
        return True if y is None else self.e.squeeze_last(y, out)

    def _typed(self, y: ir.Value | None, out: str) -> Any:
        if self.dtype is ir.DataType.FLOAT:
            return None
        return True if y is None else self.context.from_float32(y, self.dtype, out)

    def _biased(self, y: ir.Value | None, out: str) -> Any:
        if self.form.bias is None or self.form.beta == 0.0:
            return None
        if y is None:
            return True
        return self.e.op("Add", [y, self._bias()], out=out, name=f"{self.name}_bias")

    def _bias(self) -> ir.Value:
        """`beta * bias` in float32, as the product is."""
        bias, beta = self.form.bias, self.form.beta
        assert bias is not None
        tensor = self.context.constants.tensor(bias)
        if tensor is not None and beta != 1.0:
            scaled = np.asarray(tensor.numpy()).astype(np.float32) * np.float32(beta)
            return self.e.constant(np.asarray(scaled), f"{bias.name}_beta")
        bias = self.context.as_float32(bias, self.node, self.dtype)
        return bias if beta == 1.0 else scale_output(self.e, bias, beta, f"{bias.name}_beta")


def held_weight(scheme: Scheme, rank: int, context: Context) -> WeightScheme:
    """The scheme of the stored integers: uint8 for any CPU, one scale where a form has no other."""
    w = context.weight_scheme_for_cpu(scheme).weight
    assert w is not None
    dequantized = context.qdq or scheme.activation is None
    by_axis = context.opset >= FIRST_WITH_AXIS and rank == 2
    if dequantized and not by_axis and w.granularity is Granularity.CHANNEL:
        return replace(w, granularity=Granularity.TENSOR)
    return w


def transposed_input(form: LinearForm, x: ir.Value, e: Emitter) -> ir.Value:
    """`x`, which stands for the form's, with its last two axes swapped."""
    rank = 2 if form.x.shape is None else len(form.x.shape)
    if rank == 1:  # ONNX Runtime's FusedMatMul leaves a vector as it is
        return x
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return e.transpose(x, perm, f"{x.name}_transposed")


def orientation(form: LinearForm, constants: Constants) -> tuple[Root, bool]:
    """Where W [K, N] is stored, and whether it is stored as [N, K]."""
    root = constants.root(form.w)
    return root, root.transposed != form.transpose_w


def inputs_of(shape: Sequence[int], transposed: bool) -> int:
    if len(shape) == 1:
        return shape[0]
    return shape[-1] if transposed else shape[-2]


def _per_tensor(scheme: Scheme) -> Any:
    assert scheme.activation is not None
    return replace(scheme.activation, granularity=Granularity.TENSOR, group=None)
