"""Rotary positions, as exporters write them  ->  one Rotary node.

    x ─┬────────────────────────────────── Mul(cos) ─┐
       ├─ Slice(second half) ─ Neg ─┐                Add    ->   Rotary(x, cos, sin)
       └─ Slice(first half) ──── Concat ── Mul(sin) ─┘

Halves may be Slices or a Split. Neighbours are Slices of steps of two, and go through an axis of
their own: Unsqueeze, Concat, Reshape. Where only the first elements of a row turn, x and what stays
are Slices of it, and a Concat joins them behind. Cosines and sines are the same for all heads, and
of no larger batch: else the sum would have another shape than x.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.attention_scores import passes
from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.element_types import is_float32
from octavo.graph.analysis.kept_axes import same_size
from octavo.graph.analysis.walk import only_reader
from octavo.graph.context import Context
from octavo.ir.rotary import Rotary

STANDARD = ("", "ai.onnx")


def reference(
    x: npt.NDArray[Any],
    cos: npt.NDArray[Any],
    sin: npt.NDArray[Any],
    *,
    interleaved: bool = False,
) -> npt.NDArray[np.float64]:
    """Compute the reference in float64: x [..., D], and cos and sin [..., R] that broadcast."""
    size = cos.shape[-1]
    turning, staying = np.split(np.asarray(x, np.float64), [size], axis=-1)
    if interleaved:
        pairs = np.stack([-turning[..., 1::2], turning[..., ::2]], axis=-1)
        turned = pairs.reshape(turning.shape)
    else:
        first, second = np.split(turning, 2, axis=-1)
        turned = np.concatenate([-second, first], axis=-1)
    return np.concatenate([turning * cos + turned * sin, staying], axis=-1)


def fuse_rotary(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every sum of `graph` that computes rotary positions."""
    for node in list(graph):
        if node.graph is graph and _is(node, "Add"):
            found = _rotary(node, c)
            if found is not None:
                found, last = _with_rest(found, node, c)
                out = last.outputs[0].name or "rotary"
                c.replace(last, c.put(found, name=f"{out}/Rotary", outs=[out]))
    return {}


def _rotary(node: ir.Node, c: Context) -> Rotary | None:
    products = [None if v is None else v.producer() for v in node.inputs]
    for kept, moved in (products, products[::-1]):
        if kept is None or moved is None or not _is(kept, "Mul") or not _is(moved, "Mul"):
            continue
        for i in (0, 1):
            turned = moved.inputs[i]
            sin = moved.inputs[1 - i]
            for interleaved, of in ((False, _turned), (True, _turned_neighbours)):
                x = None if turned is None else of(turned, c)
                sides = [_plain(v, c) for v in kept.inputs]
                if x is None or sin is None or not any(v is x for v in sides):
                    continue
                cos = kept.inputs[0] if sides[1] is x else kept.inputs[1]
                if cos is not None and _fits(x, cos) and _fits(x, sin):
                    turns = _width(x) or 0 if interleaved else 0
                    return Rotary(x, cos, sin, turned=turns, interleaved=interleaved)
    return None


def _with_rest(found: Rotary, node: ir.Node, c: Context) -> tuple[Rotary, ir.Node]:
    """Return `found` over whole rows and their Concat, if x is their first part; else as it is."""
    reader, size = only_reader(node.outputs[0]), _width(found.x)
    if reader is None or size is None or not _is(reader[0], "Concat"):
        return found, node
    joined, index = reader
    if index != 0 or len(joined.inputs) != 2 or joined.attributes["axis"].as_int() not in (-1, 3):
        return found, node
    staying, x = joined.inputs[1], _source(found.x, c)
    width = None if x is None else _width(x)
    if x is None or staying is None or width is None or _source(staying, c) is not x:
        return found, node
    parts = _columns(found.x, width, c), _columns(staying, width, c)
    if parts != (range(size), range(size, width)):
        return found, node
    return replace(found, x=x, turned=size), joined


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
    x = _source(first, c)
    if (
        x is None
        or x is not _source(second, c)
        or concat.attributes["axis"].as_int() not in (-1, 3)
    ):
        return None
    width = _width(x)
    if width is None or width % 2:
        return None
    half = width // 2
    parts = _columns(first, width, c), _columns(second, width, c)
    return x if parts == (range(half), range(half, width)) else None


def _turned_neighbours(value: ir.Value, c: Context) -> ir.Value | None:
    """x, where `value` has the second of each two with the other sign, and then the first."""
    reshape = value.producer()
    stacked = None if reshape is None or not _is(reshape, "Reshape") else reshape.inputs[0]
    concat = None if stacked is None else stacked.producer()
    if reshape is None or concat is None or not _is(concat, "Concat") or len(concat.inputs) != 2:
        return None
    negative, first = (_without_axis(v, c) for v in concat.inputs)
    neg = None if negative is None else negative.producer()
    second = neg.inputs[0] if neg is not None and _is(neg, "Neg") else None
    x = None if first is None else _source(first, c)
    width = None if x is None else _width(x)
    if first is None or second is None or x is None or x is not _source(second, c):
        return None
    if width is None or width % 2 or concat.attributes["axis"].as_int() not in (-1, 4):
        return None
    parts = _columns(first, width, c), _columns(second, width, c)
    if parts != (range(0, width, 2), range(1, width, 2)) or not _keeps(reshape, x, width, c):
        return None
    return x


def _without_axis(value: ir.Value | None, c: Context) -> ir.Value | None:
    """Return the value to which an Unsqueeze adds a last axis of size 1; else None."""
    node = None if value is None else value.producer()
    if node is None or not _is(node, "Unsqueeze"):
        return None
    return node.inputs[0] if _numbers(node, 1, "axes", c) in ([-1], [4]) else None


def _keeps(reshape: ir.Node, x: ir.Value, width: int, c: Context) -> bool:
    """Tell whether a Reshape of [B, heads, S, D/2, 2] gives the shape of `x`, [B, heads, S, D]."""
    asked = sizes(reshape.inputs[1], c.constants)
    if asked is None or len(asked) != 4 or x.shape is None:
        return False
    zero_is_size = "allowzero" in reshape.attributes and reshape.attributes["allowzero"].as_int()
    known = [
        (size == 0 and not zero_is_size)
        or (isinstance(size, SizeOf) and same_size(size.value, size.axis, x, axis))
        or (isinstance(size, int) and size > 0 and size == x.shape[axis])
        for axis, size in enumerate(asked[:3])
    ]
    rest = known.index(False) if False in known else 3
    return (
        known.count(False) <= 1
        and asked[3] in ((width, -1) if rest == 3 else (width,))
        and (rest == 3 or asked[rest] == -1)
    )


def _width(value: ir.Value) -> int | None:
    """Return the last of four sizes, where it is known."""
    size = None if value.shape is None or len(value.shape) != 4 else value.shape[-1]
    return size if isinstance(size, int) else None


def _source(value: ir.Value, c: Context) -> ir.Value | None:
    node = value.producer()
    return None if node is None or not node.inputs else _plain(node.inputs[0], c)


def _plain(value: ir.Value | None, c: Context) -> ir.Value | None:
    """Return the value from which nodes that change nothing make `value`."""
    node = None if value is None else value.producer()
    while (
        node is not None and passes(node, c.constants) and is_float32(node.inputs[0], c.constants)
    ):
        value = node.inputs[0]
        node = None if value is None else value.producer()
    return value


def _columns(value: ir.Value, width: int, c: Context) -> range | None:
    """Tell which elements of the last axis `value` holds; None where that cannot be told."""
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
    if steps is None and len(node.inputs) > 4:
        return None
    return range(width)[starts[0] : ends[0] : 1 if steps is None else steps[0]]


def _numbers(node: ir.Node, index: int, attribute: str, c: Context) -> list[int] | None:
    if attribute in node.attributes:
        return list(node.attributes[attribute].as_ints())
    array = c.array(node.inputs[index]) if len(node.inputs) > index else None
    return None if array is None else [int(v) for v in array.reshape(-1)]


def _fits(x: ir.Value, table: ir.Value) -> bool:
    """Tell whether `table` is [B or 1, 1, S, D] for `x` [B, heads, S, D] of known sizes."""
    if x.shape is None or table.shape is None or len(table.shape) != 4:
        return False
    batch, own = table.shape[0], x.shape[0]
    named = isinstance(batch, ir.SymbolicDim) and batch.value is not None and batch == own
    alike = table.shape[1] == 1 and table.shape[3] == x.shape[3]
    if isinstance(table.shape[2], int) and table.shape[2] != x.shape[2]:
        return False  # the axes have another order: [S, batch, heads, D] and [S, 1, 1, D]
    return (batch == 1 or named) and alike and _is_float(table)


def _is_float(value: ir.Value) -> bool:
    return value.type is None or value.type.dtype is ir.DataType.FLOAT


def _is(node: ir.Node, op_type: str) -> bool:
    given = all(v is not None for v in node.inputs)
    return given and node.op_type == op_type and node.domain in STANDARD
