"""Gather from a constant table: an embedding lookup.

Gather(table, i)  ->  Mul(Cast(Gather(int8 table, i)), Gather(row scales, i))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.layer import small_table
from octavo.onnx.constants import Constants
from octavo.onnx.operators.reader import Drawn, ReadContext, Reader, attribute_int, is_float_type
from octavo.onnx.operators.tables import (
    AS_QUANTIZE_DYNAMIC,
    announce,
    held_table,
    like_quantize_dynamic,
    look_up,
    table_bytes,
    takes_native,
)
from octavo.recipe import Kind, Scheme


def reference(
    q: npt.NDArray[Any], row_scales: npt.NDArray[Any], indices: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """q int8 [V, ...], row_scales [V, 1, ...], any indices -> the dequantized rows."""
    rows: npt.NDArray[np.float64] = q[indices].astype(np.float64)
    scales: npt.NDArray[np.float64] = row_scales[indices].astype(np.float64)
    return rows * scales


def reference_native(
    q: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    zero_point: npt.NDArray[Any],
    indices: npt.NDArray[Any],
) -> npt.NDArray[np.float64]:
    """q int8 [V, ...], scale and zero_point [V], any indices -> the rows, in float64."""
    column = (-1,) + (1,) * (q.ndim - 1)
    steps = q.astype(np.float64) - np.asarray(zero_point, np.float64).reshape(column)
    rows: npt.NDArray[np.float64] = (steps * np.asarray(scale, np.float64).reshape(column))[indices]
    return rows


class GatherReader(Reader):
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

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        table = node.inputs[0]
        assert table is not None and scheme.weight is not None
        shape = c.constants.shape(table)
        axis = attribute_int(node, "axis", 0)
        if len(shape) < 2 or axis not in (0, -len(shape)):
            return f"not a table of rows: shape {list(shape)}, axis {axis}"
        if like_quantize_dynamic(scheme, c):
            return None
        if c.constants.root(table).key in c.held_anyway:
            return None  # in float it would lie there a second time
        return small_table(table_bytes(shape)) or None

    def takes_native(self, node: ir.Node, scheme: Scheme, c: ReadContext) -> bool:
        return takes_native(scheme)

    def held_native(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        return replace(scheme, activation=None), []

    def announce(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> None:
        table = node.inputs[0]
        assert table is not None
        if not native:
            announce(table, held_table(scheme, c), c)

    def macs_per_row(self, weights: Any) -> int | None:
        return None

    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        table, indices = node.inputs[0], node.inputs[1]
        assert table is not None and indices is not None
        dtype = c.constants.dtype(table) or ir.DataType.FLOAT
        out = node.outputs[0].name or name
        wide = out if dtype is ir.DataType.FLOAT else f"{out}_float32"
        assert scheme.weight is not None
        held = scheme.weight if native else held_table(scheme, c)
        y, account, notes = look_up(
            node, table, indices, held, c, name=name, out=wide, native=native
        )
        if held != scheme.weight:
            notes.append(AS_QUANTIZE_DYNAMIC)
        return Drawn([c.from_float32(y, dtype, out)], [account], notes)
