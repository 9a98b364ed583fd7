"""Linear layers as ONNX Runtime's own operators hold them.

per row      a weight that layers share, for `octavo.graph.lower`
per tensor   DynamicQuantizeLinear ─ MatMulInteger ─ Cast ─ Mul, as quantize_dynamic draws it
QDQ, weights alone   MatMul over DequantizeLinear
blocks       MatMulNBits; QDQ: MatMul over DequantizeLinear of opset 21 and later
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.graph.lower.blocks import (
    BlockForm,
    dequantized_blocks,
    linear_block,
)
from octavo.graph.lower.products import (
    dequantize,
    linear_per_tensor,
    qdq_activation,
)
from octavo.ir.activation_products import MatMul
from octavo.ir.weight import Account, QuantizedWeightValues, Weight, WeightIntegers
from octavo.onnx.blocks import is_in_blocks
from octavo.onnx.operators.operands import Operands, inputs_of
from octavo.onnx.operators.reader import ReadContext
from octavo.recipe import Granularity, Scheme, WeightScheme

FIRST_WITH_AXIS = 13  # opset of DequantizeLinear with one scale a channel


def per_row(scheme: Scheme, c: ReadContext) -> bool:
    """Tell whether activations get a scale for each row."""
    a, w = scheme.activation, scheme.weight
    rows = a is not None and a.granularity is not Granularity.TENSOR and not c.qdq
    return rows and not is_in_blocks(w)


def announce(operands: Operands, scheme: Scheme, c: ReadContext) -> None:
    """Tells the store that a layer will ask for the matrix of `operands`, of rank 2."""
    root, transposed = operands.orientation(c.constants)
    held = held_weight(scheme, 2, c)
    if is_in_blocks(held):
        c.weights.announce_blocks(root, transposed=transposed, scheme=held)
    else:
        axis, rows = 0 if transposed else 1, per_row(scheme, c)
        c.weights.announce(root, axis, held, transposed=transposed, rows=rows)


def held_weight(scheme: Scheme, rank: int, c: ReadContext) -> WeightScheme:
    """Return the stored integers' scheme: uint8 for any CPU, per tensor where a form needs that."""
    w = c.weight_scheme_for_cpu(scheme).weight
    assert w is not None
    dequantized = c.qdq or scheme.activation is None
    by_axis = c.opset >= FIRST_WITH_AXIS and rank == 2
    if dequantized and not by_axis and w.granularity is Granularity.CHANNEL:
        return replace(w, granularity=Granularity.TENSOR)
    return w


def _is_stored_matrix(operands: Operands, c: ReadContext) -> bool:
    """Tell whether W lies as a matrix of the model, which other layers may share."""
    return operands.arrangement is None and len(c.constants.shape(operands.w)) == 2


def stored_matrix(
    operands: Operands, held: WeightScheme, c: ReadContext
) -> tuple[QuantizedWeightValues, Account | None]:
    """W [K, N] in the graph, and its account where it is new."""
    if not _is_stored_matrix(operands, c):
        return _arranged(operands, held, c)
    root, transposed = operands.orientation(c.constants)
    return c.weights.matrix(root, 0 if transposed else 1, transposed=transposed)


def shared_matrix(
    operands: Operands, scheme: Scheme, c: ReadContext
) -> tuple[Weight, Account | None, list[str]]:
    """W as the weight of an operator that is lowered: [K, N], or another rank of it."""
    root, transposed = operands.orientation(c.constants)
    shape = operands.shape(c.constants)
    k = inputs_of(shape, operands.transpose_w)
    n = 1 if len(shape) == 1 else shape[-2] if operands.transpose_w else shape[-1]
    held = held_weight(scheme, len(shape), c)
    account = Account()

    def matrix() -> QuantizedWeightValues:
        values, new = stored_matrix(operands, held, c)
        if new is not None:
            account.add(new)
        return values

    def make() -> WeightIntegers:
        raise AssertionError("an operator that is lowered reads the matrix as it is stored")

    notes = c.weights.compromise(root, held) if _is_stored_matrix(operands, c) else []
    arrangement = None if operands.arrangement is None else operands.arrangement.key
    key, name = ("stored", root.key, transposed, arrangement), operands.w.name or "weight"
    weight = Weight(
        key, name, (n, k), make, matrix=c.blaming(matrix), source=operands.w, account=account
    )
    return weight, account, notes


def _arranged(
    operands: Operands, scheme: WeightScheme, c: ReadContext
) -> tuple[QuantizedWeightValues, Account | None]:
    """Quantize a vector [K] as [K, 1], matrices [..., K, N], or what is arranged as a matrix."""
    root = c.constants.root(operands.w)
    per_channel = scheme.granularity is Granularity.CHANNEL
    shapes: list[tuple[int, ...]] = []

    def make() -> tuple[npt.NDArray[np.float32], int | None]:
        array = c.weights.float32(operands.w)
        if operands.arrangement is not None:
            array = operands.arrangement.make(array)
        matrix = array[:, None] if array.ndim == 1 else array
        if operands.transpose_w and array.ndim > 1:
            matrix = np.swapaxes(matrix, -1, -2)
        shapes.append(matrix.shape)
        columns = np.ascontiguousarray(np.swapaxes(matrix, -1, -2))
        c.constants.release(operands.w)
        return columns.reshape(-1, matrix.shape[-2]), 0 if per_channel else None

    def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
        *batch, inputs, outputs = shapes[0]
        q = np.swapaxes(w.q.reshape(*batch, outputs, inputs), -1, -2)
        shape = (*batch, 1, outputs) if batch else (outputs,)
        scale, zero = w.qparams.scale, w.qparams.zero_point.astype(w.q.dtype)
        shape = shape if per_channel else ()
        return np.ascontiguousarray(q), scale.reshape(shape), zero.reshape(shape)

    arrangement = None if operands.arrangement is None else operands.arrangement.key
    key = ("arranged", root.key, root.transposed, operands.transpose_w, arrangement)
    return c.weights.custom(key, operands.w.name or "weight", make, finish, scheme)


class StockForm:
    """One product while it is drawn with stock operators."""

    def __init__(
        self,
        node: ir.Node,
        operands: Operands,
        scheme: Scheme,
        c: ReadContext,
        name: str,
        rank: int,
    ) -> None:
        self.node, self.operands, self.c, self.name = node, operands, c, name
        self.e = c.emitter
        self.weight = held_weight(scheme, rank, c)
        self.scheme = replace(scheme, weight=self.weight)

    def draw(self, x: ir.Value, out: str) -> tuple[ir.Value, Account | None, list[str]]:
        """Build the product of float32 `x` with the weight, without alpha and bias."""
        if is_in_blocks(self.weight):
            return self._blocks(x, out)
        if not self.c.constants.is_constant(self.operands.w):
            return self._activations(x, out), None, []
        w, account = stored_matrix(self.operands, self.weight, self.c)
        notes = self._compromise()
        if self.c.qdq or self.scheme.activation is None:
            return self._dequantized(x, w, out), account, notes
        rows = self.c.per_tensor(x, self.node)
        y = linear_per_tensor(self.e, rows, w, name=self.name, out=out)
        return y, account, notes

    def _compromise(self) -> list[str]:
        if not _is_stored_matrix(self.operands, self.c):
            return []
        root, _ = self.operands.orientation(self.c.constants)
        return self.c.weights.compromise(root, self.weight)

    def _activations(self, x: ir.Value, out: str) -> ir.Value:
        w = self.operands.w
        if self.c.qdq:
            a, b = self._through_integers(x), self._through_integers(w)
            return self.e.op("MatMul", [a, b], out=out, name=self.name)
        if per_row(self.scheme, self.c):
            product = MatMul(x, w, per_tensor_b=True)
            return self.c.put(product, name=self.name, outs=[out])[0]
        a_rows, b_rows = self.c.per_tensor(x, self.node), self.c.per_tensor(w, self.node)
        held = QuantizedWeightValues(b_rows.q, b_rows.scale, b_rows.zero_point)
        return linear_per_tensor(self.e, a_rows, held, name=self.name, out=out)

    def _dequantized(self, x: ir.Value, w: QuantizedWeightValues, out: str) -> ir.Value:
        per_channel = w.scale.shape is not None and len(w.scale.shape) > 0
        matrix = dequantize(self.e, w, out=f"{out}_weight", axis=1 if per_channel else None)
        if self.scheme.activation is not None:
            x = self._through_integers(x)
        return self.e.op("MatMul", [x, matrix], out=out, name=self.name)

    def _through_integers(self, x: ir.Value) -> ir.Value:
        return qdq_activation(self.e, x, self.c.per_tensor(x, self.node))

    def _blocks(self, x: ir.Value, out: str) -> tuple[ir.Value, Account | None, list[str]]:
        root, transposed = self.operands.orientation(self.c.constants)
        typed = self.c.typed_blocks
        form = BlockForm.TYPED if typed else BlockForm.MATRIX
        # docs/notes/onnxruntime.md: "Blocks lie beside their DequantizeLinear"
        graph = self.node.graph if typed and self.node.graph is not self.c.model.graph else None
        w, account = self.c.weights.blocks(
            root, self.weight, transposed=transposed, form=form, graph=graph
        )
        if not typed:
            return linear_block(self.e, x, w, name=self.name, out=out), account, []
        matrix = dequantized_blocks(self.e, w, out=f"{out}_weight")
        y = self.e.op("MatMul", [x, matrix], out=out, name=self.name)
        return y, account, []
