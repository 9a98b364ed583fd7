"""What Gather and EmbedLayerNormalization have in common: rows picked from a quantized table.

table[i]  ->  Embedding(i, table) of ai.octavo, for target native
table[i]  ->  Mul(Cast(Gather(int8 table, i)), Gather(row scales, i))    one scale a row
              DequantizeLinear(Gather(int8 table, i))                    one scale for all
              GatherBlockQuantized(table, i)    in blocks, as a linear layer that shares it may ask
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import onnx_ir as ir

from octavo.core.qparams import Grid, QType
from octavo.graph.lower.blocks import BlockForm, lookup_blocks
from octavo.graph.lower.embedding import lookup_per_tensor, lookup_rows
from octavo.ir.embedding import Embedding
from octavo.ir.weight import Account
from octavo.onnx.blocks import format_of, is_in_blocks, is_plain
from octavo.onnx.operators.operands import matrix_key, native_matrix
from octavo.onnx.operators.reader import ReadContext
from octavo.recipe import Granularity, Scheme, WeightScheme

IN_BLOCKS = "in blocks of {}: a linear layer that shares the table has them"
AS_QUANTIZE_DYNAMIC = "affine uint8, as in ONNX Runtime's quantize_dynamic"


def announce(table: ir.Value, scheme: WeightScheme, c: ReadContext) -> None:
    """Tells the store that rows of `table` will be picked."""
    if scheme.qtype.is_integer and not is_in_blocks(scheme):
        root = c.constants.root(table)
        axis = 1 if root.transposed else 0
        c.weights.announce(root, axis, scheme, transposed=root.transposed, lookup=True)


Rows = tuple[ir.Value, "Account | None", list[str]]
"""The rows in float32, the account of the table where it is new, and notes for the report."""


def look_up(
    node: ir.Node,
    table: ir.Value,
    indices: ir.Value,
    wished: WeightScheme,
    c: ReadContext,
    *,
    name: str,
    out: str,
    native: bool,
) -> Rows:
    """Build `table[indices]` for the layer `node`."""
    if native:
        return _native(node, table, indices, wished, c, name=name, out=out)
    e, store = c.emitter, c.weights
    root = c.constants.root(table)
    axis = 1 if root.transposed else 0
    shape = c.constants.shape(table)
    shared = None if c.typed_blocks else store.blocks_along(root, axis)
    blocks = wished if is_in_blocks(wished) else shared
    if blocks is not None:
        form = BlockForm.TABLE if shared is None else BlockForm.MATRIX
        w, stats = store.blocks(root, shared or blocks, transposed=axis == 0, form=form)
        y = lookup_blocks(e, w, indices, name=name, out=out)
        notes = [] if shared in (None, wished) else [IN_BLOCKS.format(w.block)]
        return y, stats, notes
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


def _native(
    node: ir.Node,
    table: ir.Value,
    indices: ir.Value,
    wished: WeightScheme,
    c: ReadContext,
    *,
    name: str,
    out: str,
) -> Rows:
    """Read rows of a table, from the packed weight where a linear layer of the graph holds it."""
    rows, *row = c.constants.shape(table)
    root, shape = c.constants.root(table), (rows, prod(row))
    by_outputs = not root.transposed
    key = matrix_key(root, node.graph, wished, by_outputs=by_outputs)
    packed = len(row) == 1 and key in c.packed
    weight = native_matrix(c, table, root, shape, node.graph, wished, by_outputs=by_outputs)
    (y,) = c.put(Embedding(indices, weight, tuple(row), packed), name=name, outs=[out])
    notes = ["the table is an output layer's weight, stored once"] if packed else []
    return y, weight.account, notes


def takes_native(scheme: Scheme) -> bool:
    """Tables with one scale a row, or of 4 bits in groups. Others keep their stock form."""
    w = scheme.weight
    assert w is not None
    in_groups = is_in_blocks(w) and not is_plain(w) and format_of(w) is not None
    return w.qtype.is_integer and (w.granularity is Granularity.CHANNEL or in_groups)


def table_bytes(shape: tuple[int, ...]) -> int:
    """Return the size of a table in float32, in bytes."""
    return int(np.prod(shape, dtype=np.int64)) * 4


def like_quantize_dynamic(scheme: Scheme, c: ReadContext) -> bool:
    """Tell whether the table has one scale, held as ONNX Runtime's quantize_dynamic holds it."""
    w = scheme.weight
    return w is not None and w.granularity is Granularity.TENSOR and not c.qdq


def held_table(scheme: Scheme, c: ReadContext) -> WeightScheme:
    """Return the table's scheme. quantize_dynamic takes a table for an activation: affine uint8."""
    w = scheme.weight
    assert w is not None
    if not like_quantize_dynamic(scheme, c):
        return w
    symmetric = w.symmetric and w.qtype is QType.UINT8
    return replace(w, qtype=QType.UINT8, symmetric=symmetric, reduce_range=False)
