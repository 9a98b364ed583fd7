"""What MatMul, Gemm and FusedMatMul have in common: y = alpha * x @ W + beta * bias.

x ─┐                       x ─ quantize_rows ─┬─ MatMulIntegerToFloat ─ Mul ─ Add ─ y
W ─┴ MatMul/Gemm ─ y  ->   W int8, scale [N] ─┘      row scale ─────────┘     │
                                                                   bias ──────┘
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.rows import SYMMETRIC
from octavo.onnx.constants import Constants
from octavo.onnx.read.normalize import FIRST_WITH_DYNAMIC
from octavo.onnx.rule import Context, Drawn, Rule, exact_inputs, is_float_type
from octavo.onnx.rules._draft import (
    Draft,
    LinearForm,
    held_weight,
    inputs_of,
    orientation,
    per_row,
)
from octavo.recipe import Granularity, Kind, Scheme


def reference(
    x: npt.NDArray[Any],
    q: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    zero_point: npt.NDArray[Any] | int = 0,
    row_zero_point: int = SYMMETRIC,
) -> npt.NDArray[np.float64]:
    """What the per-row form computes, in float64: x [..., K], q [K, N], scale [N] -> [..., N].

    A row's range is `r = max|x|` for the zero point z = 128, else
    `r = max(max x, -min x * (255 - z) / z)`; its integers are `round(x / r * (255 - z))`. A row
    with NaN or infinity gives NaN.
    """
    x64 = np.asarray(x, np.float64)
    up = 255.0 - row_zero_point
    r = x64.max(axis=-1, keepdims=True, initial=0.0)
    if row_zero_point:
        low = x64.min(axis=-1, keepdims=True, initial=0.0)
        r = np.maximum(r, -low * (1.0 if row_zero_point == SYMMETRIC else up / row_zero_point))
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.where(r > 0, np.rint(up * x64 / r), 0.0)
        integers = q.astype(np.float64) - np.asarray(zero_point, np.float64)
        y = (steps @ integers) * np.asarray(scale, np.float64) * (r / up)
    finite = np.isfinite(x64).all(axis=-1, keepdims=True)
    return np.where(finite, y, np.nan)


class LinearRule(Rule):
    """Shared by the three operators; a subclass gives `form`."""

    kind = Kind.LINEAR

    def form(self, node: ir.Node) -> LinearForm | None:
        """The operands, or None where an input is missing."""
        raise NotImplementedError(type(self).__name__)

    def refuse(self, node: ir.Node, form: LinearForm) -> str | None:
        """A reason of the operator's own why it stays float, or None."""
        return None

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        form = self.form(node)
        if form is None:
            return None
        found = tuple(v for v in (form.w, form.x) if constants.is_constant(v))
        floats = [is_float_type(constants.dtype(v)) for v in found]
        if len(found) == 2 or not all(floats):
            return None  # a constant product is folded at load; integers are not ours
        return found

    def kind_of(self, node: ir.Node, weights: tuple[ir.Value, ...]) -> Kind:
        return Kind.LINEAR if weights else Kind.ACTIVATION_MATMUL

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        form = self.form(node)
        assert form is not None and scheme.weight is not None
        if not context.constants.is_constant(form.w):
            if context.constants.is_constant(form.x):
                return (
                    "its weight is the left operand of the product; only a right one is quantized"
                )
            return self._check_activations(form, scheme, context)
        shape = context.constants.shape(form.w)
        if 0 in shape:
            return f"its weight has no elements: shape {list(shape)}"
        inputs = inputs_of(shape, form.transpose_w)
        most = exact_inputs(scheme)
        if inputs > most and scheme.activation is not None:
            return f"{inputs} inputs: int32 sums would overflow above {most}"
        if scheme.weight.granularity is Granularity.BLOCK and len(shape) != 2:
            return f"blocks need a weight of rank 2, this one has rank {len(shape)}"
        return self.refuse(node, form)

    def _check_activations(self, form: LinearForm, scheme: Scheme, context: Context) -> str | None:
        if scheme.activation is None:
            return "a product of two activations: this recipe makes only weights smaller"
        stated = {form.x.dtype, form.w.dtype} - {None}  # the operands have the same type
        if stated != {ir.DataType.FLOAT}:
            return "a product of two activations whose element type the model does not state"
        if form.transpose_x or form.transpose_w or form.alpha != 1.0 or form.bias is not None:
            return "a product of two activations with transposes, alpha or bias"
        if context.opset < FIRST_WITH_DYNAMIC:
            return f"its right operand needs DynamicQuantizeLinear; opset {context.opset} has none"
        return None

    def announce(self, node: ir.Node, scheme: Scheme, context: Context) -> None:
        form = self.form(node)
        assert form is not None and scheme.weight is not None
        if not context.constants.is_constant(form.w) or not scheme.weight.qtype.is_integer:
            return
        if len(context.constants.shape(form.w)) == 2:
            root, transposed = orientation(form, context.constants)
            held = held_weight(scheme, 2, context)
            store, axis = context.weights, 0 if transposed else 1
            if held.block is not None:
                store.announce_blocks(root, transposed=transposed, block=held.block)
            else:
                rows = per_row(scheme, context)
                store.announce(root, axis, held, transposed=transposed, rows=rows)

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        form = self.form(node)
        assert form is not None
        return Draft(node, form, scheme, context, name).draw()
