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

from octavo.core.kernels import checksum
from octavo.graph.native.embedding import embedding
from octavo.graph.native.linear import PackedValues
from octavo.onnx.native.packed import as_int8
from octavo.onnx.targets.to_native.rows import made_by, number, other, read_by
from octavo.onnx.targets.turning import Turning

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


def turn(node: ir.Node, t: Turning) -> bool:
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
    y = embedding(t.emitter, indices, w, shape[1:], packed=packed, name=name, out=out)
    t.replace(last, [y], "Embedding")
    return True


def _on_rows(node: ir.Node) -> bool:
    axis = node.attributes.get("axis")
    return node.op_type == "Gather" and (axis is None or axis.as_int() == 0)


def _centred(
    node: ir.Node, indices: ir.Value, t: Turning
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


def _looked_up(value: ir.Value | None, indices: ir.Value, t: Turning) -> npt.NDArray[Any] | None:
    """The constant whose entries for `indices` are `value`."""
    gather = made_by(value, "Gather")
    if gather is None or not _on_rows(gather) or gather.inputs[1] is not indices:
        return None
    stored = gather.inputs[0]
    return t.array(stored) if stored is not None and t.constants.is_constant(stored) else None


def _holds(
    weight: PackedValues, scales: npt.NDArray[Any], zeros: npt.NDArray[Any], t: Turning
) -> bool:
    """Whether a packed weight has these scales and these zero points, those of int8."""
    same = bool((t.array(weight.zero_point).astype(np.int32) == zeros).all())
    return same and np.array_equal(t.array(weight.scale), scales)


def _table(
    node: ir.Node,
    table: ir.Value,
    scales: npt.NDArray[Any],
    zeros: npt.NDArray[Any],
    t: Turning,
) -> tuple[PackedValues, bool]:
    """The table [V, D], and whether it is packed."""
    n, *row = t.constants.shape(table)
    k = prod(row)
    root = t.constants.root(table)
    shared = t.packed.get((root.leaf, root.transposed, node.graph))
    unsigned = t.constants.dtype(root.leaf) is ir.DataType.UINT8
    moved = zeros.astype(np.int32) - 128 if unsigned else zeros
    if shared is not None and len(row) == 1 and _holds(shared, scales, moved, t):
        return shared, True

    def make() -> PackedValues:
        stored = t.array(root.leaf)
        rows = stored.T if root.transposed else stored
        unsigned = stored.dtype == np.uint8
        every = np.broadcast_to(zeros, n).astype(np.uint8 if unsigned else np.int8)
        q, zero = as_int8(np.ascontiguousarray(rows).reshape(n, k), every)
        digest = checksum(q.view(np.uint8))
        arrays: tuple[npt.NDArray[Any], ...] = (
            np.array(q),
            scales.astype(np.float32),
            np.array(zero),
        )
        t.constants.release(root.leaf)
        name = (root.leaf.name or "table").removesuffix("_quantized")
        wishes = [f"{name}_{what}" for what in ("quantized", "scale", "zero_point")]
        parts = [t.hold(a, w, node.graph) for a, w in zip(arrays, wishes, strict=True)]
        return PackedValues(parts[0], parts[1], parts[2], n, k, digest)

    key = ("rows", root.leaf, root.transposed, node.graph, scales.tobytes(), zeros.tobytes())
    return t.once(key, make), False
