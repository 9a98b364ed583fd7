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

import onnx_ir as ir

from octavo.onnx.blocks import format_of, is_in_blocks, is_plain
from octavo.onnx.constants import Constants
from octavo.onnx.operators import activation_matmul, stock_linear
from octavo.onnx.operators.linear_layer import LinearLayer, in_scales
from octavo.onnx.operators.operands import (
    Operands,
    inputs_of,
    matrix_key,
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
        """Return the operator's own reason why `node` stays float, or None."""
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
            alpha = in_scales(operands.alpha)
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
        return LinearLayer(node, operands, scheme, c, name, native=native).draw()

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
