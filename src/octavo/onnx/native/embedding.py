"""Gather from a constant table, alone or inside EmbedLayerNormalization, as ai.octavo.Embedding.

    Gather(table, i)  ->  Embedding(i, W, scale, zero point)

A table that a linear layer of the same graph holds packed is read from there: it is stored once.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight, checksum
from octavo.graph.native.embedding import embedding
from octavo.graph.native.linear import PackedValues
from octavo.onnx.native.form import NativeForm
from octavo.onnx.native.packed import PackedUse, as_int8, hold_packed
from octavo.onnx.rule import Context, Drawn
from octavo.onnx.rules._lookup import LookUp
from octavo.onnx.rules.embed_layer_normalization import EmbedLayerNormalizationRule
from octavo.onnx.rules.gather import GatherRule
from octavo.onnx.weights import Stats
from octavo.recipe import Granularity, Scheme, WeightScheme


def reference(
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


class _TableForm(NativeForm):
    """Tables with one scale a row. Those per tensor or in blocks keep their portable form."""

    def takes(self, node: ir.Node, scheme: Scheme, context: Context) -> bool:
        w = scheme.weight
        assert w is not None
        return w.qtype.is_integer and w.granularity is Granularity.CHANNEL

    def held(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        return replace(scheme, activation=None), []


class GatherForm(_TableForm):
    """Rows picked from a table [V, ...] along its first axis."""

    def __init__(self, rule: GatherRule) -> None:
        self._rule = rule

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        return self._rule.check(node, scheme, context)

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        table, indices = node.inputs[0], node.inputs[1]
        assert table is not None and indices is not None and scheme.weight is not None
        dtype = context.constants.dtype(table) or ir.DataType.FLOAT
        out = node.outputs[0].name or name
        wide = out if dtype is ir.DataType.FLOAT else f"{out}_float32"
        look_up = rows_for(node)
        y, stats, notes = look_up(table, indices, scheme.weight, context, name=name, out=wide)
        if dtype is not ir.DataType.FLOAT:
            y = context.from_float32(y, dtype, out)
        return Drawn([y], [stats], notes)


class EmbedLayerNormalizationForm(_TableForm):
    """Two or three tables inside one operator, which is written out."""

    def __init__(self, rule: EmbedLayerNormalizationRule) -> None:
        self._rule = rule

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        assert scheme.weight is not None
        symmetric = replace(scheme, weight=replace(scheme.weight, symmetric=True))
        return self._rule.check(node, symmetric, context)  # affine rows are held too

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        return self._rule.draw(node, scheme, context, name, rows_for(node))


def rows_for(node: ir.Node) -> LookUp:
    """Lookups beside `node`, in whose graph their tables are."""

    def look_up(
        table: ir.Value,
        indices: ir.Value,
        wished: WeightScheme,
        context: Context,
        /,
        *,
        name: str,
        out: str,
    ) -> tuple[ir.Value, Stats | None, list[str]]:
        rows, *row = context.constants.shape(table)
        root = context.constants.root(table)
        use = PackedUse(root, rows, prod(row), not root.transposed, wished, node.graph)
        packed = len(row) == 1 and use.key in context.packed
        held, stats = (hold_packed if packed else _hold_rows)(use, context)
        y = embedding(context.emitter, indices, held, row, packed=packed, name=name, out=out)
        return y, stats, ["the table is an output layer's weight, stored once"] if packed else []

    return look_up


def _hold_rows(use: PackedUse, context: Context) -> tuple[PackedValues, Stats | None]:
    """The table int8 [V, D] as it is."""
    constants, store, leaf = context.constants, context.weights, use.root.leaf
    key = ("rows", *use.key)

    def make() -> tuple[npt.NDArray[np.float32], int | None]:
        array = store.float32(leaf)
        constants.release(leaf)
        rows = array if use.by_outputs else array.T
        return np.ascontiguousarray(rows).reshape(use.n, use.k), 0

    def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
        q, zero = as_int8(w.q, w.qparams.zero_point)
        context.checksums[key] = checksum(q.view(np.uint8))
        return q, w.qparams.scale, zero

    w, stats = store.custom(key, leaf.name or "table", make, finish, use.scheme, use.graph)
    digest = context.checksums[key]
    return PackedValues(w.q, w.scale, w.zero_point, use.n, use.k, digest), stats
