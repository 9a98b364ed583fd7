"""What Gather and EmbedLayerNormalization have in common: rows picked from a quantized table.

table[i]  ->  Mul(Cast(Gather(int8 table, i)), Gather(row scales, i))    one scale a row
              DequantizeLinear(Gather(int8 table, i))                    one scale for all
              the same over blocks, where a linear layer holds the table in blocks
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import onnx_ir as ir

from octavo.core.qtype import Grid, QType
from octavo.graph.embedding import lookup_blocks, lookup_per_tensor, lookup_rows
from octavo.onnx.rule import Context
from octavo.onnx.weights import Stats
from octavo.recipe import Granularity, Scheme, WeightScheme

AS_QUANTIZE_DYNAMIC = "affine uint8, as in ONNX Runtime's quantize_dynamic"


class LookUp(Protocol):
    """How a target draws `table[indices]`."""

    def __call__(
        self,
        table: ir.Value,
        indices: ir.Value,
        wished: WeightScheme,
        context: Context,
        /,
        *,
        name: str,
        out: str,
    ) -> tuple[ir.Value, Stats | None, list[str]]:
        """The rows in float32, statistics of the table where it is new, and notes."""


def announce(table: ir.Value, scheme: WeightScheme, context: Context) -> None:
    """Tells the store that rows of `table` will be picked."""
    if scheme.qtype.is_integer:
        root = context.constants.root(table)
        axis = 1 if root.transposed else 0
        context.weights.announce(root, axis, scheme, transposed=root.transposed, lookup=True)


def look_up(
    table: ir.Value,
    indices: ir.Value,
    wished: WeightScheme,
    context: Context,
    *,
    name: str,
    out: str,
) -> tuple[ir.Value, Stats | None, list[str]]:
    """The rows in float32, statistics of the table where it is new, and notes for the report."""
    e, store = context.emitter, context.weights
    root = context.constants.root(table)
    axis = 1 if root.transposed else 0
    shape = context.constants.shape(table)
    block = store.block_along(root, axis)
    if block is not None:
        w, stats = store.blocks(root, transposed=axis == 0, block=block)
        scales = store.block_scales(w)
        y = lookup_blocks(e, w, scales, indices, name=name, out=out)
        return y, stats, [f"in blocks of {block}: a linear layer that shares the table has them"]
    held = store.scheme(root)
    notes = store.compromise(root, wished)
    if held.granularity is Granularity.TENSOR:
        values, stats = store.matrix(root, axis, transposed=root.transposed)
        return lookup_per_tensor(e, values, indices, name=name, out=out), stats, notes
    assert held.symmetric, "rows of a lookup have no zero points: the plan sees to it"
    zero = Grid.of(held.qtype, symmetric=True, reduce_range=held.reduce_range).zero_point
    q, scales, stats = store.table(root, axis, len(shape), transposed=root.transposed)
    y = lookup_rows(e, q, scales, indices, name=name, out=out, zero_point=zero)
    return y, stats, notes


def table_bytes(shape: tuple[int, ...]) -> int:
    """The size of a table in float32."""
    return int(np.prod(shape, dtype=np.int64)) * 4


def like_quantize_dynamic(scheme: Scheme, context: Context) -> bool:
    """Whether the table has one scale, and is held as ONNX Runtime's quantize_dynamic holds it."""
    w = scheme.weight
    return w is not None and w.granularity is Granularity.TENSOR and not context.qdq


def held_table(scheme: Scheme, context: Context) -> WeightScheme:
    """The table's scheme. quantize_dynamic takes a table for an activation: affine uint8."""
    w = scheme.weight
    assert w is not None
    if not like_quantize_dynamic(scheme, context):
        return w
    symmetric = w.symmetric and w.qtype is QType.UINT8
    return replace(w, qtype=QType.UINT8, symmetric=symmetric, reduce_range=False)
