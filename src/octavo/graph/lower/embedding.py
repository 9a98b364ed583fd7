"""Embedding with stock operators, and lookups in quantized tables as nodes.

Embedding(i, W)  ->  Mul(Sub(Cast(Gather(table, i)), zero), Gather(row scales, i))
                     GatherBlockQuantized(table, i)    in groups
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.form import Cpu
from octavo.graph.context import Context
from octavo.graph.emit.emitter import Emitter
from octavo.graph.lower.blocks import BlockForm, lookup_blocks
from octavo.graph.lower.linear import blocks, table
from octavo.ir.embedding import Embedding
from octavo.ir.weight import QuantizedWeightValues


def lower(layer: Embedding, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower an Embedding node; return its rows, float32 [..., *row]."""
    w = layer.weight
    if w.format.group:
        form = BlockForm.MATRIX if w.key in c.tables else BlockForm.TABLE
        return [_in_blocks(layer, node, c, form)]
    column = (w.n, *[1] * len(layer.row))
    above = 0
    if w.key in c.tables:  # an output layer reads it too, and holds it as it needs
        values, above = table(w, c).q, 128 if c.cpu is Cpu.ANY else 0
    else:

        def rows() -> ir.Value:
            q = w.integers().q.reshape(w.n, *layer.row)
            return c.hold(q, w.part_name("quantized"))

        values = c.once(("rows", w.key, layer.row), rows)

    def row_numbers() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
        found = w.integers()
        return found.scale, found.zeros

    scales, zeros = c.once(("row numbers", w.key), row_numbers)
    columns = c.once(
        ("column", w.key, column),
        lambda: c.hold(np.array(scales.reshape(column)), w.part_name("scale")),
    )
    zero: int | ir.Value = above
    if np.any(zeros):
        moved = zeros.astype(np.int32).reshape(column) + above
        zero = c.once(("zeros", w.key, above), lambda: c.hold(moved, w.part_name("zero_point")))
    y = lookup_rows(
        c.emitter,
        values,
        columns,
        layer.indices,
        name=node.name or "lookup",
        out=f"{node.outputs[0].name}_rows",
        zero_point=zero,
    )
    return [y]


def _in_blocks(layer: Embedding, node: ir.Node, c: Context, form: BlockForm) -> ir.Value:
    e, out = c.emitter, f"{node.outputs[0].name}_rows"
    held, name = blocks(layer.weight, c, form), node.name or "lookup"
    if len(layer.row) == 1:
        return lookup_blocks(e, held, layer.indices, name=name, out=out)
    flat = lookup_blocks(e, held, layer.indices, name=name, out=f"{out}_flat")
    leading = e.op("Shape", [layer.indices], out=f"{out}_leading")
    shape = e.op("Concat", [leading, e.vector(layer.row)], out=f"{out}_shape", axis=0)
    return e.op("Reshape", [flat, shape], out=out)


def lookup_rows(
    e: Emitter,
    table: ir.Value,
    row_scales: ir.Value,
    indices: ir.Value,
    *,
    name: str,
    out: str,
    zero_point: int | ir.Value = 0,
) -> ir.Value:
    """Compute `(float(table[i]) - zero_point) * row_scales[i]`.

    table int8 or uint8 [V, ...], row_scales float32 [V, 1, ...]; `zero_point` is one number, or one
    for each row, of the shape of `row_scales` and of any type.
    """
    picked = e.op("Gather", [table, indices], out=f"{out}_quantized", name=name, axis=0)
    scales = e.op("Gather", [row_scales, indices], out=f"{out}_scale", axis=0)
    steps = e.cast(picked, ir.DataType.FLOAT, f"{out}_steps")
    if isinstance(zero_point, ir.Value):
        zero = e.op("Gather", [zero_point, indices], out=f"{out}_zero_point", axis=0)
        zero = e.cast(zero, ir.DataType.FLOAT, f"{out}_zero")
        steps = e.op("Sub", [steps, zero], out=f"{out}_centred")
    elif zero_point:
        steps = e.op("Sub", [steps, e.scalar(zero_point, np.float32)], out=f"{out}_centred")
    return e.op("Mul", [steps, scales], out=out, name=f"{name}_dequantize")


def lookup_per_tensor(
    e: Emitter, table: QuantizedWeightValues, indices: ir.Value, *, name: str, out: str
) -> ir.Value:
    """Gather, then DequantizeLinear with the table's one scale."""
    picked = e.op("Gather", [table.q, indices], out=f"{out}_quantized", name=name, axis=0)
    return e.op(
        "DequantizeLinear",
        [picked, table.scale, table.zero_point],
        out=out,
        name=f"{out}_DequantizeLinear",
    )
