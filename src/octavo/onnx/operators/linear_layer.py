"""One linear layer while it is read: the operator, and what is between it and the node's output.

x -> transposed -> arranged -> Linear(x, W, bias) -> scaled -> + bias -> arranged -> y
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.graph.lower.activation_nodes import keep_apart
from octavo.graph.lower.products import scale_output
from octavo.graph.rewrite.additions import one_row
from octavo.ir.linear import Linear
from octavo.ir.weight import Account, Weight
from octavo.onnx.operators import stock_linear
from octavo.onnx.operators.operands import (
    Operands,
    inputs_of,
    native_matrix,
    transposed_input,
)
from octavo.onnx.operators.reader import (
    Drawn,
    ReadContext,
)
from octavo.recipe import Scheme


def in_scales(alpha: float) -> float:
    """Return the factor of `alpha` that packed weights' scales hold: scales stay positive."""
    return alpha if alpha > 0 else 1.0


class LinearLayer:
    """One node while it is read."""

    def __init__(
        self,
        node: ir.Node,
        operands: Operands,
        scheme: Scheme,
        c: ReadContext,
        name: str,
        *,
        native: bool,
    ) -> None:
        self.node, self.operands, self.scheme, self.c = node, operands, scheme, c
        self.name, self.native, self.e = name, native, c.emitter
        constant = c.constants.is_constant(operands.w)
        dtype = c.constants.dtype(operands.w) if constant else operands.x.dtype
        self.dtype = dtype or ir.DataType.FLOAT
        self.rank = len(operands.shape(c.constants)) if constant else 2
        self.out = node.outputs[0].name or name
        self.notes: list[str] = []
        self.account: Account | None = None

    def draw(self) -> Drawn:
        """Build the operator, or stock ones, and the nodes between it and the node's output."""
        c, e, operands = self.c, self.e, self.operands
        x = c.as_float32(operands.x, self.node, self.dtype)
        if operands.transpose_x:
            x = transposed_input(operands, x, e)
        if operands.before is not None:
            x = operands.before(e, x, f"{x.name}_rows")
        bias, alpha = None, operands.alpha
        per_row = self.native or stock_linear.per_row(self.scheme, c)
        if per_row and c.constants.is_constant(operands.w):
            weight = self._weight()
            left, alpha = self._left_of_alpha()
            bias = self._row(weight.n) if alpha == 1.0 else None
            size = (self.native and self.scheme.activation and self.scheme.activation.group) or 0
            layer = Linear(x, weight, bias, group_size=size, alpha=left)
            (y,) = c.put(layer, name=self.name, outs=[f"{self.out}_product"])
        else:
            form = stock_linear.StockForm(self.node, operands, self.scheme, c, self.name, self.rank)
            # Named as ONNX Runtime's own quantizer names it, where nothing is drawn behind it.
            y, self.account, notes = form.draw(
                x, f"{self.out}_product" if self._is_continued() else self.out
            )
            self.notes += notes
        if alpha != 1.0:
            y = scale_output(e, y, alpha, f"{self.out}_scaled")
        if self.rank == 1:
            y = e.squeeze_last(y, f"{self.out}_squeezed")
        if operands.bias is not None and operands.beta != 0.0 and bias is None:
            y = e.op(
                "Add", [y, self._beta_bias()], out=f"{self.out}_biased", name=f"{self.name}_bias"
            )
        if operands.after is not None:
            y = operands.after(e, y, f"{self.out}_arranged")
        y = c.from_float32(y, self.dtype, self.out)
        if per_row and not self.native:
            keep_apart(self.node.outputs[0], c.constants)
        return Drawn([y], [self.account], self.notes)

    def _is_continued(self) -> bool:
        """Tell whether something stands between the product and the node's output."""
        operands = self.operands
        biased = operands.bias is not None and operands.beta != 0.0
        shaped = self.rank == 1 or operands.after is not None
        return biased or shaped or operands.alpha != 1.0 or self.dtype is not ir.DataType.FLOAT

    def _left_of_alpha(self) -> tuple[float, float]:
        """Return the factors of the operator and of a product behind it; scales hold the rest."""
        alpha = self.operands.alpha
        if self.native:
            return 1.0, 1.0 if in_scales(alpha) == alpha else alpha
        return alpha, 1.0

    def _weight(self) -> Weight:
        c, operands = self.c, self.operands
        assert self.scheme.weight is not None
        if not self.native:
            weight, self.account, notes = stock_linear.shared_matrix(operands, self.scheme, c)
            self.notes += notes
            return weight
        root, by_outputs = operands.orientation(c.constants)
        shape = operands.shape(c.constants)
        k = inputs_of(shape, operands.transpose_w)
        n = 1 if len(shape) == 1 else int(np.prod(shape)) // k
        weight = native_matrix(
            c,
            operands.w,
            root,
            (n, k),
            self.node.graph,
            self.scheme.weight,
            by_outputs=by_outputs,
            alpha=in_scales(operands.alpha),
            arrangement=operands.arrangement,
        )
        self.account = weight.account
        return weight

    def _row(self, n: int) -> ir.Value | None:
        """Return `beta * bias` as a constant of the node's graph; None if not one row."""
        bias, beta, c = self.operands.bias, self.operands.beta, self.c
        if bias is None or beta == 0.0:
            return None
        row = one_row(bias, n, 2, c.constants)
        if row is None:
            return None
        if beta == 1.0 and bias.is_initializer() and bias.graph is self.node.graph:
            stored = bias.const_value
            if stored is not None and tuple(stored.shape.numpy()) == (n,):
                return bias
        held = (row * beta).astype(np.float32)
        return c.emitter.constant(held, f"{self.name}_bias", self.node.graph)

    def _beta_bias(self) -> ir.Value:
        """Return `beta * bias` in float32, the type of the product."""
        bias, beta, c = self.operands.bias, self.operands.beta, self.c
        assert bias is not None
        tensor = c.constants.tensor(bias)
        if tensor is not None and beta != 1.0:
            scaled = np.asarray(tensor.numpy()).astype(np.float32) * np.float32(beta)
            return self.e.constant(np.asarray(scaled), f"{bias.name}_beta")
        bias = c.as_float32(bias, self.node, self.dtype)
        return bias if beta == 1.0 else scale_output(self.e, bias, beta, f"{bias.name}_beta")
