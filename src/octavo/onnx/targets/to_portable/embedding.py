"""ai.octavo.Embedding with ONNX's operators.

Embedding(i, W, ...)  ->  Mul(Cast(Gather(table, i)), Gather(row scales, i))
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.embedding import lookup_rows
from octavo.graph.native.embedding import EmbeddingNode
from octavo.onnx.targets.to_portable.linear import integers
from octavo.onnx.targets.turning import Outputs, Turning


def draw(node: ir.Node, t: Turning) -> Outputs:
    """The rows, float32 [..., *row]."""
    found = EmbeddingNode.of(node)
    assert found is not None
    w = found.table
    column = (w.n, *[1] * len(found.row))
    zeros = t.array(w.zero_point)

    def rows() -> npt.NDArray[np.int8]:
        q = integers(w, t) if found.packed else np.array(t.array(w.w))
        t.constants.release(w.w)
        return q.reshape(w.n, *found.row)

    def table() -> ir.Value:
        return t.hold(rows(), w.w.name)

    def columns(value: ir.Value) -> ir.Value:
        stored = t.array(value).reshape(column)
        key = ("column", value, column)
        return t.once(key, lambda: t.hold(np.array(stored), value.name))

    if w.w in t.tables:  # an output layer reads it too, and holds it as it needs
        shared = t.once(
            ("table", w.w),
            lambda: t.integers(rows(), t.array(w.scale), zeros, (w.w, w.scale, w.zero_point)),
        )
        values, above = shared.q, 128 if t.cpu == "any" else 0
    else:
        values, above = t.once(("rows", w.w, found.row), table), 0
    zero: int | ir.Value = above
    if np.any(zeros):
        moved = zeros.astype(np.int32).reshape(column) + above
        zero = t.once(("zeros", w.zero_point, above), lambda: t.hold(moved, w.zero_point.name))
    t.names.nodes.free(node.name)
    y = lookup_rows(
        t.emitter,
        values,
        columns(w.scale),
        found.indices,
        name=node.name or "lookup",
        out=f"{node.outputs[0].name}_rows",
        zero_point=zero,
    )
    return [y]
