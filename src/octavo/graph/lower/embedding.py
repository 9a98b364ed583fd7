"""Embedding with stock operators.

Embedding(i, W)  ->  Mul(Sub(Cast(Gather(table, i)), zero), Gather(row scales, i))
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.form import Cpu
from octavo.graph.context import Context
from octavo.graph.lower.linear import table
from octavo.graph.lower.lookups import lookup_rows
from octavo.ir.embedding import Embedding


def lower(layer: Embedding, node: ir.Node, c: Context) -> list[ir.Value]:
    """The rows, float32 [..., *row]."""
    w = layer.weight
    column = (w.n, *[1] * len(layer.row))
    above = 0
    if w.key in c.tables:  # an output layer reads it too, and holds it as it needs
        values, above = table(w, c).q, 128 if c.cpu is Cpu.ANY else 0
    else:

        def rows() -> ir.Value:
            q = w.make().q.reshape(w.n, *layer.row)
            return c.hold(q, w.part_name("quantized"))

        values = c.once(("rows", w.key, layer.row), rows)

    def row_numbers() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
        found = w.make()
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
