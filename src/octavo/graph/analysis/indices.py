"""Indices that a graph computes: a sum of steps along the axes of what is gathered.

Range(0, batch)[:, None] * length + Range(0, length)  ->  [batch, length], steps [length, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import STANDARD, casts_whole
from octavo.graph.analysis.dims import Dim, Dims

MOST_STEPS = 24  # nodes between a Range and what reads the indices; exporters write eight


@dataclass(frozen=True)
class Step:
    """What one step adds: a number times sizes that have names."""

    number: int = 1
    names: tuple[str, ...] = ()

    def times(self, size: Dim) -> Step | None:
        """Return the step times `size`; None where nothing is known of `size`."""
        if isinstance(size, int):
            return Step(self.number * size, self.names)
        if isinstance(size, str):
            return Step(self.number, tuple(sorted((*self.names, size))))
        return None


@dataclass(frozen=True)
class Along:
    """One axis of indices: how many there are, from 0, and their step.

    Without a step there is but one.
    """

    count: Dim
    step: Step | None


ONE = Along(1, None)


def indices(value: ir.Value | None, dims: Dims, steps: int = MOST_STEPS) -> list[Along] | None:
    """Return the axes of `value`, where it is a sum of steps along axes; else None."""
    node = None if value is None else value.producer()
    if node is None or node.domain not in STANDARD or not steps:
        return None
    if node.op_type == "Range":
        count = (dims(value) or (None,))[0]
        return None if count is None else [Along(count, Step())]
    first = indices(node.inputs[0], dims, steps - 1) if node.inputs else None
    if first is None:
        return None
    if casts_whole(node):
        return first
    if node.op_type == "Unsqueeze":
        axes = dims.axes(node, len(first))
        return None if axes is None else _with_ones(first, axes)
    if node.op_type == "Mul":
        return _times(first, node.inputs[1], dims)
    if node.op_type == "Add":
        second = indices(node.inputs[1], dims, steps - 1)
        return None if second is None else _sum(first, second)
    return None


def in_order(along: Sequence[Along], dims: Sequence[Dim]) -> bool:
    """Tell whether indices are those of all elements of a value with sizes `dims`, in their order.

    So they are where the last axis has steps of 1, and each the steps of all behind it.
    """
    moving = [axis for axis in along if axis.step is not None]
    longer = [i for i, size in enumerate(dims) if size != 1]
    if len(moving) != len(longer):
        return False
    for axis, i in zip(moving, longer, strict=True):
        step: Step | None = Step()
        for size in dims[i + 1 :]:
            step = None if step is None else step.times(size)
        if axis.count is None or axis.count != dims[i] or step is None or axis.step != step:
            return False
    return True


def _with_ones(along: Sequence[Along], axes: Sequence[int]) -> list[Along]:
    rest = iter(along)
    return [ONE if i in axes else next(rest) for i in range(len(along) + len(axes))]


def _times(along: Sequence[Along], factor: ir.Value | None, dims: Dims) -> list[Along] | None:
    size, axes = dims.elements(factor), dims(factor)
    if size is None or len(size) != 1 or axes is None or len(axes) > len(along):
        return None
    if isinstance(size[0], int) and size[0] < 0:  # the other way round
        return None
    result = []
    for axis in along:
        step = None if axis.step is None else axis.step.times(size[0])
        if step is None and axis.step is not None:
            return None
        result.append(ONE if step is None else Along(axis.count, step))
    return result


def _sum(a: Sequence[Along], b: Sequence[Along]) -> list[Along] | None:
    """Add indices, if each axis has steps in `a` or `b` alone; else return None."""
    if len(a) != len(b) or any(x.step and y.step for x, y in zip(a, b, strict=True)):
        return None
    return [y if x.step is None else x for x, y in zip(a, b, strict=True)]
