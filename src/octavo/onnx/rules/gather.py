"""Gather from a constant table: an embedding lookup.

Gather(table, i)  ->  Mul(Cast(Gather(int8 table, i)), Gather(row scales, i))
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.layer import small_table
from octavo.onnx.constants import Constants
from octavo.onnx.rule import Context, Drawn, Rule, attribute_int, is_float_type
from octavo.onnx.rules._lookup import (
    AS_QUANTIZE_DYNAMIC,
    announce,
    held_table,
    like_quantize_dynamic,
    look_up,
    table_bytes,
)
from octavo.recipe import Kind, Scheme


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
        if like_quantize_dynamic(scheme, context):
            return None
        if context.constants.root(table).key in context.held_anyway:
            return None  # in float it would lie there a second time
        return small_table(table_bytes(shape)) or None

    def announce(self, node: ir.Node, scheme: Scheme, context: Context) -> None:
        table = node.inputs[0]
        assert table is not None
        announce(table, held_table(scheme, context), context)

    def macs_per_row(self, weights: Any) -> int | None:
        return None

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        table, indices = node.inputs[0], node.inputs[1]
        assert table is not None and indices is not None
        dtype = context.constants.dtype(table) or ir.DataType.FLOAT
        out = node.outputs[0].name or name
        wide = out if dtype is ir.DataType.FLOAT else f"{out}_float32"
        held = held_table(scheme, context)
        y, stats, notes = look_up(table, indices, held, context, name=name, out=wide)
        if held != scheme.weight:
            notes.append(AS_QUANTIZE_DYNAMIC)
        if dtype is not ir.DataType.FLOAT:
            y = context.from_float32(y, dtype, out)
        return Drawn([y], [stats], notes)
