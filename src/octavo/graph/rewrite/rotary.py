"""Rotary positions by halves, as exporters write them  ->  one Rotary node.

    x ─┬────────────────────────────────── Mul(cos) ─┐
       ├─ Slice(second half) ─ Neg ─┐                Add    ->   Rotary(x, cos, sin)
       └─ Slice(first half) ──── Concat ── Mul(sin) ─┘

Halves may be Slices or a Split. Cosines and sines are the same for all heads, and of no larger
batch: else the sum would have another shape than x.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir.rotary import Rotary

STANDARD = ("", "ai.onnx")


def reference(
    x: npt.NDArray[Any], cos: npt.NDArray[Any], sin: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """What is taken over, in float64: x [..., D] and what broadcasts with it."""
    first, second = np.split(np.asarray(x, np.float64), 2, axis=-1)
    turned = np.concatenate([-second, first], axis=-1)
    rotated: npt.NDArray[np.float64] = np.asarray(x, np.float64) * cos + turned * sin
    return rotated


def fuse_rotary(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Every such sum of `graph`."""
    for node in list(graph):
        if node.graph is graph and _is(node, "Add"):
            found = _rotary(node, c)
            if found is not None:
                out = node.outputs[0].name or "rotary"
                c.replace(node, c.put(found, name=f"{out}/Rotary", outs=[out]))
    return {}


def _rotary(node: ir.Node, c: Context) -> Rotary | None:
    products = [None if v is None else v.producer() for v in node.inputs]
    for kept, moved in (products, products[::-1]):
        if kept is None or moved is None or not _is(kept, "Mul") or not _is(moved, "Mul"):
            continue
        for i in (0, 1):
            turned = moved.inputs[i]
            x = None if turned is None else _turned(turned, c)
            sin = moved.inputs[1 - i]
            if x is None or sin is None or not any(v is x for v in kept.inputs):
                continue
            cos = kept.inputs[0] if kept.inputs[1] is x else kept.inputs[1]
            if cos is not None and _fits(x, cos) and _fits(x, sin):
                return Rotary(x, cos, sin)
    return None


def _turned(value: ir.Value, c: Context) -> ir.Value | None:
    """x, where `value` is its second half with the other sign, and then its first."""
    concat = value.producer()
    if concat is None or not _is(concat, "Concat") or len(concat.inputs) != 2:
        return None
    negative, first = concat.inputs
    neg = None if negative is None else negative.producer()
    second = neg.inputs[0] if neg is not None and _is(neg, "Neg") else None
    if first is None or second is None or first.shape is None or len(first.shape) != 4:
        return None
    x = _source(first)
    if x is None or x is not _source(second) or concat.attributes["axis"].as_int() not in (-1, 3):
        return None
    width = None if x.shape is None or len(x.shape) != 4 else x.shape[-1]
    if not isinstance(width, int) or width % 2:
        return None
    half = width // 2
    parts = _columns(first, width, c), _columns(second, width, c)
    return x if parts == (range(half), range(half, width)) else None


def _source(value: ir.Value) -> ir.Value | None:
    node = value.producer()
    return None if node is None or not node.inputs else node.inputs[0]


def _columns(value: ir.Value, width: int, c: Context) -> range | None:
    """Which of the last axis `value` holds."""
    node = value.producer()
    if node is None:
        return None
    if _is(node, "Split"):
        axis = node.attributes.get("axis")
        sizes = _numbers(node, 1, "split", c) or [width // 2] * len(node.outputs)
        if axis is None or axis.as_int() not in (-1, 3) or sizes != [width // 2] * 2:
            return None
        start = value.index() or 0
        return range(start * (width // 2), (start + 1) * (width // 2))
    if not _is(node, "Slice"):
        return None
    starts, ends, axes, steps = (
        _numbers(node, i, name, c) for i, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    if starts is None or ends is None or axes not in ([-1], [3]):
        return None
    if steps != [1] and (steps is not None or len(node.inputs) > 4):
        return None
    return range(width)[starts[0] : ends[0]]


def _numbers(node: ir.Node, index: int, attribute: str, c: Context) -> list[int] | None:
    if attribute in node.attributes:
        return list(node.attributes[attribute].as_ints())
    array = c.array(node.inputs[index]) if len(node.inputs) > index else None
    return None if array is None else [int(v) for v in array.reshape(-1)]


def _fits(x: ir.Value, table: ir.Value) -> bool:
    """Whether `table` is [B or 1, 1, S, D] for `x` [B, heads, S, D] of sizes that are known."""
    if x.shape is None or table.shape is None or len(table.shape) != 4:
        return False
    batch, own = table.shape[0], x.shape[0]
    named = isinstance(batch, ir.SymbolicDim) and batch.value is not None and batch == own
    alike = table.shape[1] == 1 and table.shape[3] == x.shape[3]
    return (batch == 1 or named) and alike and _is_float(table)


def _is_float(value: ir.Value) -> bool:
    return value.type is None or value.type.dtype is ir.DataType.FLOAT


def _is(node: ir.Node, op_type: str) -> bool:
    given = all(v is not None for v in node.inputs)
    return given and node.op_type == op_type and node.domain in STANDARD
