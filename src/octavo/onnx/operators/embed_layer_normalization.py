"""com.microsoft.EmbedLayerNormalization: three embedding tables inside a fused operator.

EmbedLayerNormalization(ids, segments, word, position, segment, gamma, beta, mask)
  ->  lookup_rows(word, ids) + lookup_rows(position, 0..S-1) [+ lookup_rows(segment, segments)]
      -> LayerNormalization;  the mask's row sums as the second output

With one scale for all of a table, as in quantize_dynamic, it stays one: QEmbedLayerNormalization.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.ir import MS
from octavo.ir.weight import Account, QuantizedWeightValues
from octavo.onnx.constants import Constants
from octavo.onnx.operators.gather import reference  # noqa: F401 - each lookup's arithmetic
from octavo.onnx.operators.reader import (
    Drawn,
    ReadContext,
    Reader,
    attribute_float,
    attribute_int,
    input_at,
    is_float_type,
)
from octavo.onnx.operators.tables import (
    AS_QUANTIZE_DYNAMIC,
    announce,
    held_table,
    like_quantize_dynamic,
    look_up,
    takes_native,
)
from octavo.recipe import Granularity, Kind, Scheme, WeightScheme

TABLES = (2, 3, 4)
NORMALIZATION = (5, 6)  # gamma and beta
MASK = 7
FIRST_WITH_RANGE = 11  # opset


class EmbedLayerNormalizationReader(Reader):
    """Tables [V, H], [P, H] and perhaps [T, H]."""

    op = "com.microsoft.EmbedLayerNormalization"
    kind = Kind.EMBEDDING

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        tables = [t for t in (input_at(node, i) for i in TABLES) if t is not None]
        if not tables or not all(constants.is_constant(t) for t in tables):
            return None
        if not all(is_float_type(constants.dtype(t)) for t in tables):
            return None
        return tuple(tables)

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        word = node.inputs[2]
        assert word is not None and scheme.weight is not None
        if c.constants.dtype(word) is not ir.DataType.FLOAT:
            return "the fused operator in 16 bits has no CPU form to compare with"
        if attribute_int(node, "mask_index_type", 1) == 0:
            return "it has mask_index_type 0, which the integer form has not"
        if input_at(node, 8) is not None:
            return "it takes position_ids, which the integer form does not"
        if not native and like_quantize_dynamic(scheme, c):
            return self._check_fused(node, c)
        if c.opset < FIRST_WITH_RANGE:
            return f"positions are counted with Range, which opset {c.opset} has not"
        symmetric = native or scheme.weight.symmetric  # kernels hold affine rows too
        if scheme.weight.granularity is Granularity.TENSOR or not symmetric:
            return "its tables are held with one symmetric scale a row, or float"
        return None

    def _check_fused(self, node: ir.Node, c: ReadContext) -> str | None:
        if len(node.outputs) > 2 and node.outputs[2].name:
            return "QEmbedLayerNormalization has no third output"
        if not all(c.constants.is_constant(input_at(node, i)) for i in NORMALIZATION):
            return "QEmbedLayerNormalization takes gamma and beta in integers: these are computed"
        return None

    def takes_native(self, node: ir.Node, scheme: Scheme, c: ReadContext) -> bool:
        return takes_native(scheme)

    def held_native(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        return replace(scheme, activation=None), []

    def announce(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> None:
        if native:
            return
        held = held_table(scheme, c)
        for i in TABLES:
            table = input_at(node, i)
            if table is not None:
                announce(table, held, c)

    def macs_per_row(self, weights: object) -> int | None:
        return None

    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        if not native and like_quantize_dynamic(scheme, c):
            return self._fused(node, scheme, c, name)
        return self._written_out(node, scheme, c, name, native=native)

    def _fused(self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str) -> Drawn:
        """ONNX Runtime's own form: one affine scale for each table, and for gamma and beta."""
        held = held_table(scheme, c)
        parts: list[QuantizedWeightValues | None] = []
        accounts: list[Account | None] = []
        for i in (*TABLES, *NORMALIZATION):
            value = input_at(node, i)
            found, new = None, None
            if value is not None and i in TABLES:
                root = c.constants.root(value)
                axis = 1 if root.transposed else 0
                found, new = c.weights.matrix(root, axis, transposed=root.transposed)
            elif value is not None:
                found, new = _vector(value, held, c)
            parts.append(found)
            accounts.append(new)
        outs = [o.name or "" for o in node.outputs[:2]]
        results = c.emitter.op_n(
            "QEmbedLayerNormalization",
            [
                node.inputs[0],
                input_at(node, 1),
                *(None if p is None else p.q for p in parts),
                input_at(node, MASK),
                *(None if p is None else p.scale for p in parts),
                *(None if p is None else p.zero_point for p in parts),
            ],
            outs=outs,
            domain=MS,
            name=f"{name}_quant",
            epsilon=attribute_float(node, "epsilon", 1e-12),
        )
        notes = [AS_QUANTIZE_DYNAMIC] if held != scheme.weight else []
        return Drawn(list(results), accounts, notes)

    def _written_out(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        """Lookups, and the normalization of their sum."""
        e = c.emitter
        ids, segments, mask = node.inputs[0], input_at(node, 1), input_at(node, 7)
        assert ids is not None
        outs = [o.name or f"{name}_{i}" for i, o in enumerate(node.outputs)]
        accounts: list[Account | None] = []
        notes: list[str] = []

        def rows(index: int, indices: ir.Value, what: str) -> ir.Value:
            table = node.inputs[index]
            assert table is not None and scheme.weight is not None
            y, new, more = look_up(
                node,
                table,
                indices,
                scheme.weight,
                c,
                name=f"{name}_{what}",
                out=f"{outs[0]}_{what}",
                native=native,
            )
            accounts.append(new)
            notes.extend(more)
            return y

        total = e.op(
            "Add",
            [rows(2, ids, "word"), rows(3, self._positions(c, ids, name), "position")],
            out=f"{outs[0]}_sum",
        )
        if segments is not None and input_at(node, 4) is not None:
            total = e.op("Add", [total, rows(4, segments, "segment")], out=f"{outs[0]}_segment_sum")
        epsilon = attribute_float(node, "epsilon", 1e-12)
        gamma, beta = node.inputs[5], node.inputs[6]
        if e.opset >= 17:
            y = e.op(
                "LayerNormalization",
                [total, gamma, beta],
                out=outs[0],
                name=name,
                axis=-1,
                epsilon=epsilon,
            )
        else:  # not yet a standard operator: ONNX Runtime's own, which adds a second input
            nothing = e.op("Sub", [total, total], out=f"{outs[0]}_nothing")
            y = e.op(
                "SkipLayerNormalization",
                [total, nothing, gamma, beta],
                out=outs[0],
                name=name,
                domain=MS,
                epsilon=epsilon,
            )
        results: list[ir.Value | None] = [y]
        if len(outs) > 1:
            results.append(self._mask_index(c, ids, mask, outs[1]))
        if len(outs) > 2:
            results.append(total)
        return Drawn(results, accounts, notes)

    def _positions(self, c: ReadContext, ids: ir.Value, name: str) -> ir.Value:
        """Build the positions 0..S-1 from the shape of ids [B, S], as int64 [S]."""
        e = c.emitter
        shape = e.op("Shape", [ids], out=f"{name}_shape")
        length = e.op("Gather", [shape, e.scalar(1, np.int64)], out=f"{name}_length", axis=0)
        first, step = e.scalar(0, np.int64), e.scalar(1, np.int64)
        return e.op("Range", [first, length, step], out=f"{name}_positions")

    def _mask_index(
        self, c: ReadContext, ids: ir.Value, mask: ir.Value | None, out: str
    ) -> ir.Value:
        """Count the positions that each sequence uses, as int32 [B]; zeros without a mask."""
        e = c.emitter
        source = mask if mask is not None else ids
        wide = e.cast(source, ir.DataType.INT32, f"{out}_int32")
        if mask is None:
            wide = e.op("Mul", [wide, e.scalar(0, np.int32)], out=f"{out}_zeros")
        if e.opset >= 13:
            return e.op("ReduceSum", [wide, e.vector([1])], out=out, keepdims=0)
        return e.op("ReduceSum", [wide], out=out, axes=[1], keepdims=0)


def _vector(
    value: ir.Value, held: WeightScheme, c: ReadContext
) -> tuple[QuantizedWeightValues, Account | None]:
    """Gamma or beta [H] with one scale."""

    def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
        scale, zero = w.qparams.scale, w.qparams.zero_point.astype(w.q.dtype)
        return w.q, scale.reshape(()), zero.reshape(())

    key = ("vector", c.constants.root(value).key)
    return c.weights.custom(
        key, value.name or "weight", lambda: (c.weights.float32(value), None), finish, held
    )
