"""Products of which only some columns are gathered  ->  products of those columns.

    x ─ MatMul(table) ─ GatherElements(index, axis=-1)
    index ─ ReduceMin, ReduceMax ─ low, high
      ->  x ─ MatMul(table[:, low : high + 1]) ─ GatherElements(index - low, axis=-1)

So DeBERTa adds positions to its scores: products with all 512 of its table, of which a text of
128 tokens reads 255. Which columns are read is data, and costs two looks at the indices; the slice
is taken as far up as the table is no larger.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.bounds import ValueBounds
from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.fixed_values import FixedValues
from octavo.graph.analysis.static_sizes import StaticSizes
from octavo.graph.analysis.walk import only_reader
from octavo.graph.context import Context

STANDARD = ("", "ai.onnx")
LEAST_COLUMNS = 64  # of a product from which on fewer columns are worth two looks at the indices
VIEWS = frozenset(("Expand", "Squeeze", "Unsqueeze", "Identity"))
"""What gives the numbers of its first input again."""


class _Known(NamedTuple):
    """What is known of the model's values."""

    sizes: StaticSizes
    fixed: FixedValues


class _Range(NamedTuple):
    """Of the values of one index: the least, one more than the largest, and index - least."""

    low: ir.Value
    end: ir.Value
    moved: ir.Value


def reference(
    x: npt.NDArray[Any], table: npt.NDArray[Any], index: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Compute the reference in float64: x [M, K], table [K, N], index [M, J] -> [M, J]."""
    product = np.asarray(x, np.float64) @ table
    found: npt.NDArray[np.float64] = np.take_along_axis(product, index, -1)
    return found


# docs/notes/native_target.md: "Only the columns that are gathered"
def slice_columns(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Slice every product of `graph` of which only some columns are gathered."""
    found: dict[ir.Value, _Range] = {}
    constants = Fixed(c.constants)
    bounds = ValueBounds(constants)
    static = c.once("static sizes", lambda: StaticSizes(c.model, constants))
    known = _Known(static, FixedValues(constants))
    for node in [n for n in graph if n.op_type == "GatherElements" and n.domain in STANDARD]:
        product, index = _product(node, known.sizes), node.inputs[1]
        if product is None or index is None or bounds(index).low < 0:
            continue
        views, root = _views(index)
        if root not in found:
            found[root] = _range(root, c)
        table = _sliced(product.inputs[1], -1, found[root], known, c)
        names = (product.outputs[0].name or "product", node.outputs[0].name or "gathered")
        columns = c.emitter.op("MatMul", [product.inputs[0], table], out=f"{names[0]}_columns")
        moved = found[root].moved
        for view in reversed(views):
            moved = _again(view, moved, c)
        gathered = c.emitter.op("GatherElements", [columns, moved], out=names[1], axis=-1)
        c.replace(node, [gathered])
    return {}


def _product(node: ir.Node, static: StaticSizes) -> ir.Node | None:
    """Return the MatMul of which `node` gathers columns and nobody reads others; else None."""
    data = node.inputs[0]
    made = None if data is None else data.producer()
    if made is None or made.op_type != "MatMul" or made.domain not in STANDARD:
        return None
    table, index = static(made.inputs[1]), static(node.inputs[1])
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    is_last = axis == -1 or (index is not None and axis == len(index) - 1)
    if not is_last or table is None or len(table) < 2 or (table[-1] or 0) < LEAST_COLUMNS:
        return None
    return made if only_reader(made.outputs[0]) else None


def _views(index: ir.Value) -> tuple[list[ir.Node], ir.Value]:
    """Return the nodes that only expand or reshape another value to `index`, and that value."""
    views: list[ir.Node] = []
    while (made := index.producer()) is not None and made.op_type in VIEWS:
        source = made.inputs[0]
        if made.domain not in STANDARD or source is None or made.graph is not _graph_of(index):
            break
        views.append(made)
        index = source
    return views, index


def _graph_of(value: ir.Value) -> ir.Graph | None:
    made = value.producer()
    found = None if made is None else made.graph
    return found if isinstance(found, ir.Graph) else None


def _range(root: ir.Value, c: Context) -> _Range:
    """Compute the range of the indices `root`.

    Of no indices at all the range is empty: the least of nothing is the largest number there is.
    """
    name, e = root.name or "index", c.emitter
    low = e.op("ReduceMin", [root], out=f"{name}_low", keepdims=0)
    high = e.op("ReduceMax", [root], out=f"{name}_high", keepdims=0)
    ends = [
        e.unsqueeze(e.cast(value, ir.DataType.INT64, f"{name}_end"), [0], f"{name}_end")
        for value in (low, high)
    ]
    end = e.op("Add", [ends[1], e.vector([1])], out=f"{name}_end")
    return _Range(ends[0], end, e.op("Sub", [root, low], out=f"{name}_moved"))


def _sliced(table: ir.Value | None, axis: int, part: _Range, known: _Known, c: Context) -> ir.Value:
    """Slice `part` out of `table` along `axis`, which counts from the end.

    A table that is the same in every run stays whole: ONNX Runtime computes it once.
    """
    assert table is not None
    made = None if known.fixed.of(table) else table.producer()
    before = None if made is None else _axis_before(made, axis, known.sizes)
    if made is not None and before is not None:
        return _again(made, _sliced(made.inputs[0], before, part, known, c), c)
    ends = [part.low, part.end, c.emitter.vector([axis])]
    return c.emitter.op("Slice", [table, *ends], out=f"{table.name}_columns")


def _axis_before(node: ir.Node, axis: int, static: StaticSizes) -> int | None:
    """Tell which axis of the node's input its output's `axis` is; None where that cannot be told.

    Both count from the end.
    """
    x = static(node.inputs[0]) if node.inputs else None
    if not x or node.domain not in STANDARD:
        return None
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        order = [*range(len(x))[::-1]] if perm is None else list(perm.as_ints())
        return order[axis] - len(x)
    if node.op_type == "Tile":
        repeats = static.numbers(node.inputs[1])
        return axis if repeats is not None and repeats[axis] == 1 else None
    return None


def _again(node: ir.Node, source: ir.Value, c: Context) -> ir.Value:
    """Repeat `node` with `source` in the place of its first input."""
    out = f"{node.outputs[0].name}_columns"
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    return c.emitter.op(node.op_type, [source, *node.inputs[1:]], out=out, **attributes)
