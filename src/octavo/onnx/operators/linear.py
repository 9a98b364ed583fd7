"""Linear layers and products of activations: y = alpha * x @ W + beta * bias.

    MatMul, Gemm, FusedMatMul  ->  Linear(x, W, bias), with W constant
    MatMul(a, b)               ->  MatMul(a, b), of two activations

What follows a layer (a bias, an activation, a residual) `octavo.graph.rewrite` takes in. Schemes
that the operators have not are drawn at once: `stock_linear`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from octavo.graph.lower.activation_nodes import keep_apart
from octavo.graph.lower.products import scale_output
from octavo.graph.rewrite.additions import one_row
from octavo.ir.linear import Linear
from octavo.ir.weight import Account, Weight
from octavo.onnx.blocks import format_of, is_in_blocks, is_plain
from octavo.onnx.constants import Constants
from octavo.onnx.operators import activation_matmul, stock_linear
from octavo.onnx.operators.operands import (
    Operands,
    inputs_of,
    matrix_key,
    native_matrix,
    transposed_input,
)
from octavo.onnx.operators.reader import (
    Drawn,
    ReadContext,
    Reader,
    attribute_float,
    attribute_int,
    by_groups,
    by_rows,
    exact_inputs,
    input_at,
    is_float_type,
)
from octavo.onnx.read.normalize import FIRST_WITH_DYNAMIC
from octavo.recipe import Kind, Scheme, WeightScheme
from octavo.recipe.scheme import GROUPS


class LinearReader(Reader):
    """Shared by the operators; a subclass gives `operands`."""

    kind = Kind.LINEAR

    @abstractmethod
    def operands(self, node: ir.Node, constants: Constants) -> Operands | None:
        """Its operands, or None where an input is missing."""

    def refuse(self, node: ir.Node, operands: Operands) -> str | None:
        """A reason of the operator's own why it stays float, or None."""
        return None

    def outputs(self, node: ir.Node, shape: Sequence[int]) -> int | None:
        """N of a weight of `shape` [K, N] or [K]; None for others."""
        if len(shape) > 2:
            return None
        return 1 if len(shape) == 1 else shape[0 if attribute_int(node, "transB", 0) else 1]

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        found = self.operands(node, constants)
        if found is None:
            return None
        weights = tuple(v for v in (found.w, found.x) if constants.is_constant(v))
        floats = [is_float_type(constants.dtype(v)) for v in weights]
        if len(weights) == 2 or not all(floats):
            return None  # a constant product is folded at load; integers are not ours
        return weights

    def kind_of(self, node: ir.Node, weights: tuple[ir.Value, ...]) -> Kind:
        return Kind.LINEAR if weights else Kind.ACTIVATION_MATMUL

    def takes_native(self, node: ir.Node, scheme: Scheme, c: ReadContext) -> bool:
        operands = self._of(node, c)
        assert scheme.weight is not None
        if scheme.activation is None:
            return False
        if not c.constants.is_constant(operands.w):
            return not c.constants.is_constant(operands.x)
        rank, w = len(operands.shape(c.constants)), scheme.weight
        return rank in (1, 2) and (not is_in_blocks(w) or format_of(w) is not None)

    def held_native(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        return by_groups(scheme) if is_in_blocks(scheme.weight) else by_rows(scheme)

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        operands = self._of(node, c)
        assert scheme.weight is not None
        if not c.constants.is_constant(operands.w):
            return self._check_activations(node, operands, scheme, c, native=native)
        shape = operands.shape(c.constants)
        if 0 in shape:
            return f"its weight has no elements: shape {list(shape)}"
        inputs, most = inputs_of(shape, operands.transpose_w), exact_inputs(scheme)
        if not native and inputs > most and scheme.activation is not None:
            return f"{inputs} inputs: int32 sums would overflow above {most}"
        return self._refuse_blocks(operands, scheme.weight, c, native=native) or self.refuse(
            node, operands
        )

    def _refuse_blocks(
        self, operands: Operands, w: WeightScheme, c: ReadContext, *, native: bool
    ) -> str | None:
        if native or not is_in_blocks(w):
            return None
        rank = len(c.constants.shape(operands.w))
        if rank != 2:
            return f"blocks need a weight of rank 2, this one has rank {rank}"
        if not is_plain(w) and format_of(w) is None:
            known = ", ".join(map(str, GROUPS))
            return f"a search of scales goes with blocks of {known}, not of {w.block}"
        return None

    def _check_activations(
        self, node: ir.Node, operands: Operands, scheme: Scheme, c: ReadContext, *, native: bool
    ) -> str | None:
        if c.constants.is_constant(operands.x):
            return "its weight is the left operand of the product; only a right one is quantized"
        if native:
            return activation_matmul.refuse_native(node, operands) or self.refuse(node, operands)
        return activation_matmul.refuse(operands, scheme, c.opset, FIRST_WITH_DYNAMIC)

    def announce(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> None:
        operands = self._of(node, c)
        assert scheme.weight is not None
        if not c.constants.is_constant(operands.w) or not scheme.weight.qtype.is_integer:
            return
        if native:
            root, by_outputs = operands.orientation(c.constants)
            alpha = _in_scales(operands.alpha)
            key = matrix_key(root, node.graph, scheme.weight, by_outputs=by_outputs, alpha=alpha)
            if operands.arrangement is None:
                c.packed.add(key)
        elif len(operands.shape(c.constants)) == 2 and operands.arrangement is None:
            stock_linear.announce(operands, scheme, c)

    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        operands = self._of(node, c)
        constant = c.constants.is_constant(operands.w)
        if native and not constant:
            return activation_matmul.read_native(node, operands, scheme, c, name)
        return _Layer(node, operands, scheme, c, name, native=native).draw()

    def _of(self, node: ir.Node, c: ReadContext) -> Operands:
        operands = self.operands(node, c.constants)
        assert operands is not None
        return operands


class MatMulReader(LinearReader):
    """`y = x @ W`; W [K], [K, N] or [..., K, N]."""

    op = "MatMul"

    def operands(self, node: ir.Node, constants: Constants) -> Operands | None:
        x, w = node.inputs[0], node.inputs[1]
        return None if x is None or w is None else Operands(x, w)


class GemmReader(LinearReader):
    """`y = alpha * A' @ B' + beta * C`, all of rank 2."""

    op = "Gemm"

    def operands(self, node: ir.Node, constants: Constants) -> Operands | None:
        found = _transposed(node)
        if found is None:
            return None
        beta = attribute_float(node, "beta", 1.0)
        return replace(found, bias=input_at(node, 2), beta=beta)


class FusedMatMulReader(LinearReader):
    """`y = alpha * x' @ W'`, the last two axes of each operand swapped where asked."""

    op = "com.microsoft.FusedMatMul"

    def operands(self, node: ir.Node, constants: Constants) -> Operands | None:
        return _transposed(node)

    def refuse(self, node: ir.Node, operands: Operands) -> str | None:
        for name in ("transBatchA", "transBatchB"):
            if attribute_int(node, name, 0):
                return f"{name} moves the batch axis, for which there is no integer operator"
        if operands.transpose_x and operands.x.shape is None:
            return "it transposes its input (transA), whose rank the model does not state"
        return None


def _transposed(node: ir.Node) -> Operands | None:
    x, w = node.inputs[0], node.inputs[1]
    if x is None or w is None:
        return None
    return Operands(
        x,
        w,
        transpose_x=bool(attribute_int(node, "transA", 0)),
        transpose_w=bool(attribute_int(node, "transB", 0)),
        alpha=attribute_float(node, "alpha", 1.0),
    )


def _in_scales(alpha: float) -> float:
    """What of `alpha` the scales of packed weights hold, as long as they stay scales."""
    return alpha if alpha > 0 else 1.0


class _Layer:
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
        """The operator, or stock ones, and what stands between it and the node's output."""
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
        """Whether something stands between the product and the node's output."""
        operands = self.operands
        biased = operands.bias is not None and operands.beta != 0.0
        shaped = self.rank == 1 or operands.after is not None
        return biased or shaped or operands.alpha != 1.0 or self.dtype is not ir.DataType.FLOAT

    def _left_of_alpha(self) -> tuple[float, float]:
        """The factors that the operator and a product behind it apply; scales have the rest."""
        alpha = self.operands.alpha
        if self.native:
            return 1.0, 1.0 if _in_scales(alpha) == alpha else alpha
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
            alpha=_in_scales(operands.alpha),
            arrangement=operands.arrangement,
        )
        self.account = weight.account
        return weight

    def _row(self, n: int) -> ir.Value | None:
        """`beta * bias` where it is a constant of one row, as a constant of the node's graph."""
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
        """`beta * bias` in float32, as the product is."""
        bias, beta, c = self.operands.bias, self.operands.beta, self.c
        assert bias is not None
        tensor = c.constants.tensor(bias)
        if tensor is not None and beta != 1.0:
            scaled = np.asarray(tensor.numpy()).astype(np.float32) * np.float32(beta)
            return self.e.constant(np.asarray(scaled), f"{bias.name}_beta")
        bias = c.as_float32(bias, self.node, self.dtype)
        return bias if beta == 1.0 else scale_output(self.e, bias, beta, f"{bias.name}_beta")
