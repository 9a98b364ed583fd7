"""Masks that are gathered by computed indices  ->  masks that are read where they are.

    mask ─ Flatten ─ Gather(b * length + k) ─ Reshape ─ And(True) ─ Expand ─┐
                                                                            ├ Where(0, -inf) ─ Add
    mask ─ Unsqueeze ───────────────────────────────────────────────────────┘

So exporters write what PyTorch computes of an index each of batch, head, query and key: a mask
[B, S] as [B, 1, S, S] in three dozen nodes, which cost a short input as much as two products. Where
the indices are those of the mask's own elements in their order, nothing was gathered; and an
expansion that an addition to scores makes anyhow is left to it. Sizes are the same where the model
calls them by one name: `dims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import STANDARD
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.dims import Dim, Dims, broadcast, filled_with
from octavo.graph.analysis.indices import in_order, indices
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.emit.emitter import Emitter
from octavo.graph.emit.sweeper import Sweeper

MOST_STEPS = 24  # nodes between a mask and its Where; exporters write ten
LAST = frozenset("And Cast Expand Gather Reshape".split())
"""What may end a condition that is worth a look."""


@dataclass(frozen=True)
class Mask:
    """A Where whose condition is `source` with axes of size 1 put in."""

    where: ir.Node
    source: ir.Value
    axes: tuple[int, ...]


@dataclass(frozen=True)
class _View:
    """A condition: True everywhere, or the elements of `source` in their order.

    `own` are its sizes, `full` those to which it is expanded.
    """

    source: ir.Value | None
    own: tuple[Dim, ...]
    full: tuple[Dim, ...]

    @property
    def is_expanded(self) -> bool:
        """Tell whether `full` may be more than `own`."""
        return self.own is not self.full and (self.own != self.full or None in self.own)


def masks_of(model: ir.Model, constants: ConstantLookup, dims: Dims) -> list[Mask]:
    """Return the masks of `model` that need no indices; `constants` must hold in every run."""
    nodes = [node for graph in graphs_of(model) for node in graph if _may_be_mask(node, constants)]
    look = _Look(constants, dims)
    return [mask for node in nodes if (mask := look.mask(node)) is not None]


# docs/notes/onnxruntime.md: "Masks are added as they are given"
def read_plainly(masks: Sequence[Mask], e: Emitter, sweeper: Sweeper) -> list[str]:
    """Lets each Where read its source; returns a note on what was done."""
    for mask in masks:
        old = mask.where.inputs[0]
        assert old is not None
        condition = mask.source
        if mask.axes:
            condition = e.unsqueeze(mask.source, mask.axes, f"{mask.source.name}_unsqueezed")
            e.flush_before(mask.where)
        mask.where.replace_input_with(0, condition)
        mask.where.outputs[0].shape = None
        sweeper.unused(old)
    plural = "masks are" if len(masks) > 1 else "mask is"
    return (
        [f"{len(masks)} {plural} added as given, not gathered or expanded first"] if masks else []
    )


def _may_be_mask(node: ir.Node, constants: ConstantLookup) -> bool:
    if node.op_type != "Where" or node.domain not in STANDARD or node.inputs[0] is None:
        return False
    made = node.inputs[0].producer()
    values = [constants.tensor(v) for v in node.inputs[1:]]
    if made is None or made.op_type not in LAST or any(t is None or t.size != 1 for t in values):
        return False
    readers = [use.node for use in node.outputs[0].uses()]
    adds = bool(readers) and all(r.op_type == "Add" and r.domain == "" for r in readers)
    return adds and not node.outputs[0].is_graph_output()


class _Look:
    """What the values of one model are as conditions."""

    def __init__(self, constants: ConstantLookup, dims: Dims) -> None:
        self.constants, self.dims = constants, dims
        self.seen: dict[ir.Value, _View | None] = {}
        self.ways: Mapping[str, Callable[[ir.Node, int], _View | None]] = {
            "And": self._both,
            "Cast": self._cast,
            "ConstantOfShape": self._filled,
            "Expand": self._expanded,
            "Gather": self._gathered,
            "GreaterOrEqual": self._not_negative,
            "Reshape": self._reshaped,
        }

    def mask(self, where: ir.Node) -> Mask | None:
        """Return the mask that every reader of `where` may read instead; None for none."""
        condition = where.inputs[0]
        view = self._view(condition, MOST_STEPS)
        if view is None or view.source is None or view.source is condition:
            return None
        axes = _ones_put_in(self.dims(view.source) or (), view.own)
        reads = (use.node for use in where.outputs[0].uses())
        if axes is None or not all(self._expands(add, where.outputs[0], view) for add in reads):
            return None
        return Mask(where, view.source, axes)

    def _expands(self, add: ir.Node, mask: ir.Value, view: _View) -> bool:
        """Tell whether `add` gives the same where `mask` is not expanded before."""
        scores = self.dims(next((v for v in add.inputs if v is not mask), None))
        if scores is None or len(scores) < len(view.full):
            return False
        behind = scores[len(scores) - len(view.full) :]
        return all(
            size == 1 or (size is not None and size == there)
            for size, there in zip(view.full, behind, strict=True)
        )

    def _view(self, value: ir.Value | None, steps: int) -> _View | None:
        """View `value` as a condition; None where that cannot be told."""
        if value is None or not steps:
            return None
        if value not in self.seen:
            self.seen[value] = self._seen_anew(value, steps)
        return self.seen[value]

    def _seen_anew(self, value: ir.Value, steps: int) -> _View | None:
        tensor, node, dims = self.constants.tensor(value), value.producer(), self.dims(value)
        if tensor is not None:
            true = tensor.dtype is ir.DataType.BOOL and tensor.size == 1 and tensor.numpy().all()
            return _View(None, dims or (), dims or ()) if true else None
        if node is not None and node.domain in STANDARD and node.op_type in self.ways:
            found = self.ways[node.op_type](node, steps - 1)
            if found is not None:
                return found
        return None if dims is None or None in dims else _View(value, dims, dims)

    def _both(self, node: ir.Node, steps: int) -> _View | None:
        """View the And of a condition that is True everywhere and another one."""
        a, b = (self._view(v, steps) for v in node.inputs)
        if a is None or b is None or (a.source is not None and b.source is not None):
            return None
        kept, full = (b if a.source is None else a), broadcast([a.full, b.full])
        return None if full is None else _View(kept.source, kept.own, full)

    def _cast(self, node: ir.Node, steps: int) -> _View | None:
        """View a Cast of a condition to a condition."""
        view = self._view(node.inputs[0], steps)
        if view is None or node.attributes["to"].as_int() != ir.DataType.BOOL:
            return None
        return view if view.source is None or _is_condition(view.source) else None

    def _filled(self, node: ir.Node, steps: int) -> _View | None:
        shape = self.dims.elements(node.inputs[0])
        if shape is None or filled_with(node) is not True:
            return None
        return _View(None, tuple(shape), tuple(shape))

    def _expanded(self, node: ir.Node, steps: int) -> _View | None:
        view = self._view(node.inputs[0], steps)
        full = None if view is None else broadcast([view.full, self.dims.expanded_to(node)])
        return None if view is None or full is None else _View(view.source, view.own, full)

    def _reshaped(self, node: ir.Node, steps: int) -> _View | None:
        view, dims = self._view(node.inputs[0], steps), self.dims(node.outputs[0])
        if view is None or view.is_expanded or dims is None:
            return None
        return _View(view.source, dims, dims)

    def _not_negative(self, node: ir.Node, steps: int) -> _View | None:
        """Read indices >= a number up to 0 as True everywhere: indices are at least 0."""
        along, least = indices(node.inputs[0], self.dims), self.constants.tensor(node.inputs[1])
        dims = self.dims(node.outputs[0])
        if along is None or least is None or dims is None or least.size != 1:
            return None
        return _View(None, dims, dims) if least.numpy().max() <= 0 else None

    def _gathered(self, node: ir.Node, steps: int) -> _View | None:
        """Return a view of a flattened value whose elements are gathered in their order."""
        flat = None if node.inputs[0] is None else node.inputs[0].producer()
        axis, own = node.attributes.get("axis"), self.dims(node.outputs[0])
        if flat is None or own is None or (axis is not None and axis.as_int() != 0):
            return None
        source = flat.inputs[0]
        dims, along = self.dims(source), indices(node.inputs[1], self.dims)
        if dims is None or along is None or not self._flattens(flat, len(dims)):
            return None
        return _View(source, own, own) if in_order(along, dims) else None

    def _flattens(self, node: ir.Node, rank: int) -> bool:
        """Tell whether `node` puts all elements of a value of `rank` along the first axis."""
        if node.op_type == "Flatten" and node.domain in STANDARD:
            axis = node.attributes.get("axis")
            return axis is not None and axis.as_int() == rank > 0
        flattens = node.op_type == "Reshape" and node.domain in STANDARD
        return flattens and self.dims.elements(node.inputs[1]) == [-1]


def _is_condition(value: ir.Value) -> bool:
    """Tell whether `value` holds nothing but truth values."""
    node = value.producer()
    if node is None or node.op_type != "Cast":
        return value.dtype is ir.DataType.BOOL
    return node.attributes["to"].as_int() == ir.DataType.BOOL


def _ones_put_in(dims: Sequence[Dim], own: Sequence[Dim]) -> tuple[int, ...] | None:
    """Return the axes of size 1 that make `own` of `dims`; None where those do not."""
    axes, rest = [], list(dims)
    for i, size in enumerate(own):
        if rest and size is not None and size == rest[0]:
            del rest[0]
        elif size == 1:
            axes.append(i)
        else:
            return None
    return None if rest else tuple(axes)
