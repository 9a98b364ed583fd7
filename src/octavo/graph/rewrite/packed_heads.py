"""Queries, keys and values that are parted after their heads  ->  parted columns of their layer.

    x ─ Linear(W [3HD, K]) ─ Reshape[B, L, 3, H, D] ─┬─ Slice, Squeeze     (or Split, or Gather)
                                                     └─ ...
    x ─ Linear(W [3HD, K]) ─ Split ─┬─ Reshape[B, L, H, D]
                                    └─ ...

A Transpose behind the Reshape (timm's, which puts the parts first) becomes one of each part.
`split_columns` then takes the layer apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.heads import is_standard, perm_of
from octavo.graph.analysis.kept_axes import leaves_rows
from octavo.graph.analysis.walk import only_reader
from octavo.graph.context import Context
from octavo.ir.linear import Linear

AXES, PARTS = 5, 2
"""Of [B, L, parts, heads, D], and the axis of the parts."""
AS_THEY_ARE = (0, 1, 2, 3, 4)
KEPT = (0, 1, 3, 4)


def reference(y: npt.NDArray[Any], parts: int, heads: int) -> list[npt.NDArray[np.float64]]:
    """Compute the reference in float64: y [B, L, parts * heads * D] -> each [B, L, heads, D]."""
    wide = np.asarray(y, np.float64).reshape(*y.shape[:2], parts, heads, -1)
    return [wide[:, :, i] for i in range(parts)]


@dataclass(frozen=True)
class _Part:
    """The node that gives a part, and which it is."""

    node: ir.Node
    index: int


def split_packed_heads(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Split every Reshape of `graph` behind a layer that puts heads before their parting."""
    for node in list(graph):
        linear = Linear.of(node)
        read = None if linear is None else only_reader(node.outputs[0])
        if linear is None or read is None or read[1] != 0 or not is_standard(read[0], "Reshape"):
            continue
        shape = sizes(read[0].inputs[1], c.constants)
        if shape is None or len(shape) != AXES or linear.residual is not None:
            continue
        count = _count(shape[PARTS:], linear.weight.n)
        # A size that is not stated is what is left, if batch and length stay what they were.
        whole = all(isinstance(size, int) and size > 0 for size in shape[PARTS:])
        if not whole and not _keeps_rows(read[0], shape):
            continue
        order, parts = _parts(read[0], count, c) if count else (AS_THEY_ARE, [])
        if parts:
            _draw(read[0], parts, order, [linear.weight.n // count] * count, c)
    return {}


def _keeps_rows(reshape: ir.Node, shape: Sequence[int | SizeOf]) -> bool:
    """Tell whether the input and result of `reshape` are stated to share their first two sizes."""
    given, source = reshape.attributes.get("allowzero"), reshape.inputs[0]
    if source is None or -1 in shape[:PARTS]:
        return False
    zero_is_size = given is not None and bool(given.as_int())
    return leaves_rows(shape[:PARTS], source, None, zero_is_size=zero_is_size)


def _count(last: Sequence[int | SizeOf], width: int) -> int:
    """Count the parts of a layer of that width from their number, heads and depth; 0 for none."""
    known = [size for size in last if isinstance(size, int)]
    stated = [size for size in known if size != -1]
    count = known[0] if len(known) == len(last) else 0
    if count < 1 or min(stated) < 1 or len(stated) + 1 < len(last):
        return 0
    whole = math.prod(stated)
    return count if whole == width or (len(stated) < len(last) and width % whole == 0) else 0


def _parts(reshape: ir.Node, count: int, c: Context) -> tuple[tuple[int, ...], list[_Part]]:
    """Return the order of axes after any Transpose, and all parts, or none if one is missing."""
    value = reshape.outputs[0]
    order: tuple[int, ...] = AS_THEY_ARE
    read = only_reader(value)
    if read is not None and is_standard(read[0], "Transpose"):
        value, order = read[0].outputs[0], perm_of(read[0])
    if len(order) != AXES or value.is_graph_output():
        return order, []
    axis = order.index(PARTS)
    found: list[_Part] = []
    for node in dict.fromkeys(use.node for use in value.uses()):
        if any(v is value for v in node.inputs[1:]) or node.graph is not reshape.graph:
            return order, []
        found += _of(node, axis, count, c)
    return order, found if sorted(part.index for part in found) == list(range(count)) else []


def _of(node: ir.Node, axis: int, count: int, c: Context) -> list[_Part]:
    """Return the parts that `node` gives, without the axis of the parts."""
    places = (axis, axis - AXES)
    given = node.attributes.get("axis")
    if is_standard(node, "Gather"):
        at = c.array(node.inputs[1])
        if (0 if given is None else given.as_int()) not in places or at is None or at.ndim:
            return []
        return [_Part(node, int(at) % count)]
    if is_standard(node, "Split"):
        if (0 if given is None else given.as_int()) not in places or len(node.outputs) != count:
            return []
        squeezed = [_squeeze(value, places, c) for value in node.outputs]
        return [_Part(each, i) for i, each in enumerate(squeezed) if each is not None]
    if not is_standard(node, "Slice") or len(node.inputs) < 4:
        return []
    starts, ends, axes = (sizes(v, c.constants) for v in node.inputs[1:4])
    steps = sizes(node.inputs[4], c.constants) if len(node.inputs) > 4 else [1]
    if not starts or not ends or axes not in ([places[0]], [places[1]]) or steps != [1]:
        return []
    if not isinstance(starts[0], int) or not isinstance(ends[0], int):
        return []
    taken, last = range(count)[starts[0] : ends[0]], _squeeze(node.outputs[0], places, c)
    return [_Part(last, taken[0])] if len(taken) == 1 and last is not None else []


def _squeeze(value: ir.Value, places: Sequence[int], c: Context) -> ir.Node | None:
    """Return the one reader of `value`, if it squeezes the axis at one of `places`; else None."""
    read = only_reader(value)
    if read is None or read[1] != 0 or not is_standard(read[0], "Squeeze"):
        return None
    node, given = read[0], read[0].attributes.get("axes")
    axes = list(given.as_ints()) if given is not None else None
    if axes is None and len(node.inputs) > 1 and (stored := c.array(node.inputs[1])) is not None:
        axes = [int(i) for i in stored.reshape(-1)]
    return node if axes is not None and len(axes) == 1 and axes[0] in places else None


def _draw(
    reshape: ir.Node, parts: Sequence[_Part], order: Sequence[int], widths: list[int], c: Context
) -> None:
    e, (source, shape) = c.emitter, reshape.inputs[:2]
    assert source is not None
    name = reshape.outputs[0].name or "heads"
    columns = e.split(source, -1, widths, [f"{name}_{i}" for i in range(len(widths))])
    own = _without_parts(shape, name, c)
    turned = tuple(KEPT.index(axis) for axis in order if axis != PARTS)
    values = []
    for part in parts:
        out = part.node.outputs[0].name or "part"
        apart = e.op("Reshape", [columns[part.index], own], out=f"{out}_apart")
        plain = turned == tuple(sorted(turned))
        values.append(apart if plain else e.transpose(apart, turned, f"{out}_turned"))
    e.flush_before(reshape)
    for part, value in zip(parts, values, strict=True):
        c.sweeper.replace(part.node, [value])


def _without_parts(shape: ir.Value | None, name: str, c: Context) -> ir.Value:
    """Build a shape without the element that says how many parts there are."""
    stored = c.array(shape)
    if stored is not None:
        return c.emitter.vector([int(stored[axis]) for axis in KEPT])
    concat = None if shape is None else shape.producer()
    if concat is not None and is_standard(concat, "Concat") and len(concat.inputs) == AXES:
        kept = [concat.inputs[axis] for axis in KEPT]
        return c.emitter.op("Concat", kept, out=f"{name}_shape", axis=0)
    return c.emitter.op("Gather", [shape, c.emitter.vector(KEPT)], out=f"{name}_shape", axis=0)
