"""Gather from a constant table: an embedding lookup.

Gather(table, i)  ->  Mul(Cast(Gather(int8 table, i)), Gather(row scales, i))
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.embedding import lookup_per_tensor, lookup_rows
from octavo.onnx.constants import Constants
from octavo.onnx.rule import Context, Drawn, Rule, attribute_int, is_float_type
from octavo.recipe import Granularity, Kind, Scheme

MIN_BYTES = 16 * 1024  # a smaller table saves nothing worth two more nodes


def reference(
    q: npt.NDArray[Any], row_scales: npt.NDArray[Any], indices: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """q int8 [V, ...], row_scales [V, 1, ...], any indices -> the dequantized rows."""
    rows: npt.NDArray[np.float64] = q[indices].astype(np.float64)
    scales: npt.NDArray[np.float64] = row_scales[indices].astype(np.float64)
    return rows * scales


class GatherRule(Rule):
    """Rows picked from a table [V, ...] along its first axis."""

    op = "Gather"
    kind = Kind.EMBEDDING

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        table, indices = node.inputs[0], node.inputs[1]
        if table is None or indices is None or not constants.is_constant(table):
            return None
        if constants.is_constant(indices) or not is_float_type(constants.dtype(table)):
            return None
        return (table,)

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        table = node.inputs[0]
        assert table is not None and scheme.weight is not None
        shape = context.constants.shape(table)
        axis = attribute_int(node, "axis", 0)
        if len(shape) < 2 or axis not in (0, -len(shape)):
            return f"not a table of rows: shape {list(shape)}, axis {axis}"
        size = int(np.prod(shape)) * 4
        if size < MIN_BYTES:
            return f"its table has {size} bytes: below {MIN_BYTES} there is nothing to win"
        return None

    def announce(self, node: ir.Node, scheme: Scheme, context: Context) -> None:
        table = node.inputs[0]
        assert table is not None and scheme.weight is not None
        if not scheme.weight.qtype.is_integer:
            return
        root = context.constants.root(table)
        axis = 1 if root.transposed else 0
        context.weights.announce(root, axis, transposed=root.transposed, lookup=True)

    def macs_per_row(self, weights: Any) -> int | None:
        return None

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        table, indices = node.inputs[0], node.inputs[1]
        assert table is not None and indices is not None and scheme.weight is not None
        root = context.constants.root(table)
        axis = 1 if root.transposed else 0
        store, notes = context.weights, []
        per_channel = scheme.weight.granularity is not Granularity.TENSOR
        w_scheme = scheme.weight
        if per_channel and store.shares_one_scale(root):
            notes.append("one scale for the whole table: a layer that shares it needs columns")
            per_channel = False
        w, stats = store.matrix(root, axis, transposed=root.transposed, scheme=w_scheme)
        dtype = context.constants.dtype(table) or ir.DataType.FLOAT
        out = node.outputs[0].name or name
        wide = out if dtype is ir.DataType.FLOAT else f"{out}_float32"
        e = context.emitter
        if per_channel and scheme.weight.symmetric:
            scales = store.row_scales(w, len(context.constants.shape(table)))
            y = lookup_rows(e, w.q, scales, indices, name=name, out=wide)
        else:
            y = lookup_per_tensor(e, w, indices, name=name, out=wide)
        if dtype is not ir.DataType.FLOAT:
            y = context.from_float32(y, dtype, out)
        return Drawn([y], [stats], notes)
