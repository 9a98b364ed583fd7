"""One wide Linear whose columns are taken apart  ->  a Linear for each part.

    x ─ Linear(W [3N, K]) ─ Split   ->   x ─┬─ Linear(W[:N])
                          (or Slices)       ├─ Linear(W[N:2N])
                                            └─ Linear(W[2N:])

They become one GroupedLinear, whose outputs nobody copies, or a gated layer (Phi-3, ModernBERT),
and each takes in what is behind its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import GroupedWeight
from octavo.graph.context import Context
from octavo.ir.linear import Linear
from octavo.ir.operator import LAYER
from octavo.ir.weight import Weight, WeightIntegers, rows_of

STANDARD = ("", "ai.onnx")


def reference(y: npt.NDArray[Any], ranges: Sequence[range]) -> list[npt.NDArray[np.float64]]:
    """Compute the reference in float64: y [..., N] -> its columns in each range."""
    return [np.asarray(y, np.float64)[..., part.start : part.stop] for part in ranges]


@dataclass(frozen=True)
class _Part:
    """Columns `start` to `stop`, and the value that holds them."""

    start: int
    stop: int
    value: ir.Value
    node: ir.Node


# docs/notes/native_target.md: "A wide layer is taken apart"
def split_columns(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Split every wide Linear of `graph` whose columns are taken apart."""
    for node in list(graph):
        linear = Linear.of(node)
        if linear is None or linear.residual is not None:
            continue
        parts = _parts(node, linear, c)
        bias = None if linear.bias is None else c.array(linear.bias)
        if parts and (linear.bias is None or bias is not None):
            _draw(node, linear, parts, bias, c)
    return {}


def _parts(node: ir.Node, linear: Linear, c: Context) -> list[_Part]:
    """Return the columns each reader takes; nothing where one takes other than a range."""
    y, n = node.outputs[0], linear.weight.n
    readers = list(dict.fromkeys(use.node for use in y.uses()))
    if y.is_graph_output() or any(r.graph is not node.graph for r in readers):
        return []
    rank = None if linear.x.shape is None else len(linear.x.shape)
    found: list[_Part] = []
    for reader in readers:
        if reader.domain not in STANDARD or any(v is y for v in reader.inputs[1:]):
            return []
        taken = _split(reader, n, rank, c) if reader.op_type == "Split" else []
        taken = _slice(reader, n, rank, c) if reader.op_type == "Slice" else taken
        if not taken:
            return []
        found += taken
    # Columns that two readers take are not computed twice.
    return found if sum(p.stop - p.start for p in found) <= n else []


def _split(node: ir.Node, n: int, rank: int | None, c: Context) -> list[_Part]:
    given, count = node.attributes.get("axis"), len(node.outputs)
    if (0 if given is None else given.as_int()) not in _last(rank):
        return []
    sizes = _numbers(node, 1, "split", c)
    if sizes is None:
        sizes = [-(-n // count)] * (count - 1)
        sizes.append(n - sum(sizes))
    if len(sizes) != count or sum(sizes) != n or min(sizes) < 1:
        return []
    stops = np.cumsum(sizes).tolist()
    named = zip(sizes, stops, node.outputs, strict=True)
    return [_Part(stop - size, stop, value, node) for size, stop, value in named]


def _slice(node: ir.Node, n: int, rank: int | None, c: Context) -> list[_Part]:
    starts, ends, axes, steps = (
        _numbers(node, i, name, c) for i, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    if starts is None or ends is None or axes is None or len(axes) != 1:
        return []
    if (
        axes[0] not in _last(rank)
        or (steps is None and len(node.inputs) > 4)
        or steps not in (None, [1])
    ):
        return []
    start, stop, _ = slice(starts[0], ends[0]).indices(n)
    return [_Part(start, stop, node.outputs[0], node)] if start < stop else []


def _numbers(node: ir.Node, index: int, attribute: str, c: Context) -> list[int] | None:
    """Constants that were attributes before they became inputs."""
    if attribute in node.attributes:
        return list(node.attributes[attribute].as_ints())
    array = c.array(node.inputs[index]) if len(node.inputs) > index else None
    return None if array is None else [int(v) for v in array.reshape(-1)]


def _last(rank: int | None) -> tuple[int, ...]:
    return (-1,) if rank is None else (-1, rank - 1)


def _draw(
    node: ir.Node,
    linear: Linear,
    parts: Sequence[_Part],
    bias: npt.NDArray[Any] | None,
    c: Context,
) -> None:
    rows = _Rows(linear.weight, len(parts))
    name, layer = node.name or "linear", node.meta.get(LAYER)
    c.names.nodes.free(node.name)
    new = []
    for i, part in enumerate(parts):
        columns = slice(part.start, part.stop)
        constant = None
        if bias is not None:
            wish = f"{linear.weight.name}_bias_{part.start}"
            constant = c.emitter.constant(np.ascontiguousarray(bias[columns]), wish, node.graph)
        one = replace(linear, weight=rows.weight(part.start, part.stop), bias=constant)
        wish = name if i == 0 else f"{name}_{part.start}"
        new += c.put(one, name=wish, outs=[part.value.name or "y"], layer=layer)
    c.emitter.flush_before(node)
    by_part = dict(zip((part.value for part in parts), new, strict=True))
    for reader in dict.fromkeys(part.node for part in parts):
        c.sweeper.replace(reader, [by_part[value] for value in reader.outputs])


class _Rows:
    """Rows of a weight [N, K], which is made once for all of its parts."""

    def __init__(self, whole: Weight, parts: int) -> None:
        self._whole, self._left = whole, parts
        self._made: WeightIntegers | GroupedWeight | None = None

    def weight(self, start: int, stop: int) -> Weight:
        """Rows `start` to `stop`."""
        whole = self._whole

        def make() -> WeightIntegers | GroupedWeight:
            return rows_of(self._take(), slice(start, stop))

        return Weight(
            (whole.key, start, stop),
            f"{whole.name}_{start}",
            (stop - start, whole.k),
            make,
            source=whole.source,
            account=whole.account,
            format=whole.format,
        )

    def _take(self) -> WeightIntegers | GroupedWeight:
        """Return the whole weight, which is dropped when the last part has taken it."""
        found = self._whole.make() if self._made is None else self._made
        self._left -= 1
        self._made = found if self._left > 0 else None
        return found
