"""Lookups in an int8 table as ai.octavo.Embedding.

Mul(Sub(Cast(Gather(table, i)), zero), Gather(row scales, i))  ->  Embedding(i, W)

A table that a linear layer of the same graph holds packed is read from there.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.stored_integers import as_int8
from octavo.ir.embedding import Embedding
from octavo.ir.weight import Weight, WeightIntegers
from octavo.onnx.from_portable.context import RecognitionContext
from octavo.onnx.from_portable.quantized_rows import made_by, number, other, read_by

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


def recognize(node: ir.Node, t: RecognitionContext) -> bool:
    """Whether `node` was the Gather of such a lookup; it is drawn anew then."""
    table, indices = node.inputs[0], node.inputs[1]
    if table is None or indices is None or not _on_rows(node):
        return False
    if not t.constants.is_constant(table) or t.constants.dtype(table) not in BYTES:
        return False
    found = _centred(node, indices, t)
    if found is None:
        return False
    zeros, steps = found
    last = read_by(steps, "Mul")
    if last is None:
        return False
    scales = _looked_up(other(last, steps), indices, t)
    shape = t.constants.shape(table)
    if scales is None or len(shape) < 2 or scales.size != shape[0]:
        return False
    w, packed = _table(node, table, scales.reshape(-1), zeros, t)
    name, out = node.name or "lookup", last.outputs[0].name or "rows"
    t.names.nodes.free(node.name)
    layer = Embedding(indices, w, tuple(shape[1:]), packed)
    t.replace(last, t.put(layer, name=name, outs=[out]), "Embedding")
    return True


def _on_rows(node: ir.Node) -> bool:
    axis = node.attributes.get("axis")
    return node.op_type == "Gather" and (axis is None or axis.as_int() == 0)


def _centred(
    node: ir.Node, indices: ir.Value, t: RecognitionContext
) -> tuple[npt.NDArray[Any], ir.Value] | None:
    """The zero points, one or one a row, and the steps from them as float32."""
    cast = read_by(node.outputs[0], "Cast")
    if cast is None:
        return None
    steps = cast.outputs[0]
    sub = read_by(steps, "Sub")
    if sub is None:
        return np.zeros(1, np.int32), steps
    by = sub.inputs[1]
    one = number(by, t)
    if one is not None:
        return np.array([one]).astype(np.int32), sub.outputs[0]
    wide = made_by(by, "Cast")
    zeros = None if wide is None else _looked_up(wide.inputs[0], indices, t)
    return None if zeros is None else (zeros.reshape(-1), sub.outputs[0])


def _looked_up(
    value: ir.Value | None, indices: ir.Value, t: RecognitionContext
) -> npt.NDArray[Any] | None:
    """The constant whose entries for `indices` are `value`."""
    gather = made_by(value, "Gather")
    if gather is None or not _on_rows(gather) or gather.inputs[1] is not indices:
        return None
    stored = gather.inputs[0]
    return t.numbers(stored) if stored is not None and t.constants.is_constant(stored) else None


def _table(
    node: ir.Node,
    table: ir.Value,
    scales: npt.NDArray[Any],
    zeros: npt.NDArray[Any],
    t: RecognitionContext,
) -> tuple[Weight, bool]:
    """The table [V, D], and whether a linear layer of the same graph has it packed."""
    n, *row = t.constants.shape(table)
    k = prod(row)
    root = t.constants.root(table)
    shared = t.matrices.get((root.leaf, root.transposed, node.graph))
    unsigned = t.constants.dtype(root.leaf) is ir.DataType.UINT8
    moved = zeros.astype(np.int32) - (128 if unsigned else 0)
    if shared is not None and len(row) == 1 and shared.holds(scales, moved):
        return shared.weight, True

    def make() -> WeightIntegers:
        stored = t.numbers(root.leaf)
        rows = stored.T if root.transposed else stored
        every = np.broadcast_to(zeros, n).astype(stored.dtype)
        q, zero = as_int8(np.ascontiguousarray(rows).reshape(n, k), every)
        q, zero = np.array(q), np.array(zero)
        t.constants.release(root.leaf)
        return WeightIntegers(q, scales.astype(np.float32), zero)

    key = ("rows", root.leaf, root.transposed, scales.tobytes(), zeros.tobytes())
    name = (root.leaf.name or "table").removesuffix("_quantized")
    return t.once(key, lambda: Weight(key, name, (n, k), make, source=table)), False
