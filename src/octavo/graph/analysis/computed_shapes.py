"""What a shape that the graph computes is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup

STANDARD = ("", "ai.onnx")
PASSING = frozenset("Identity Squeeze Unsqueeze".split())  # one number stays that number
WHOLE = (ir.DataType.INT64, ir.DataType.INT32)  # types that hold every size
MOST_STEPS = 16  # nodes between a size and the number that is made of it; exporters write three
MOST_NESTED = 4  # Concats of Concats; exporters write one
MOST_ELEMENTS = 16  # of a shape: more than any value has axes


@dataclass(frozen=True)
class SizeOf:
    """The size of one axis of a value, taken while the model runs."""

    value: ir.Value
    axis: int


def stated_rank(value: ir.Value) -> int | None:
    """Return the number of axes that the model states for `value`, or None."""
    return None if value.shape is None else len(value.shape)


def sizes(
    shape: ir.Value | None,
    constants: ConstantLookup,
    rank_of: Callable[[ir.Value], int | None] = stated_rank,
    nested: int = MOST_NESTED,
) -> list[int | SizeOf] | None:
    """Return a vector's elements: numbers, and sizes of other values; None for anything else.

    Known are constants, Concat, and what Shape, Slice and Gather take from a shape. `rank_of` tells
    the number of axes of a value.
    """
    if shape is None:
        return None
    tensor = constants.tensor(shape)
    if tensor is not None:
        numbers = whole_numbers(tensor)
        return None if numbers is None else [*numbers]
    node = shape.producer()
    if node is None or node.domain not in STANDARD:
        return None
    if node.op_type == "Concat":
        found: list[int | SizeOf] = []
        for part in node.inputs:
            elements = sizes(part, constants, rank_of, nested - 1) if nested else None
            if elements is None or len(found) + len(elements) > MOST_ELEMENTS:
                return None
            found += elements
        return found
    if node.op_type == "Slice":
        return _sliced(node, constants, rank_of)
    several = _reordered(node, constants)
    if several is not None:
        return [*several]
    one = _size(shape, constants, rank_of)
    return None if one is None else [one]


def whole_numbers(tensor: ir.TensorProtocol) -> list[int] | None:
    """Return the whole numbers of a shape, an axis or an index; None for any other constant."""
    if tensor.dtype not in WHOLE or tensor.size > MOST_ELEMENTS:
        return None
    return [int(i) for i in np.asarray(tensor.numpy()).reshape(-1)]


def _one_number(tensor: ir.TensorProtocol | None) -> int | None:
    numbers = None if tensor is None else whole_numbers(tensor)
    return numbers[0] if numbers is not None and len(numbers) == 1 else None


def _size(
    value: ir.Value | None,
    constants: ConstantLookup,
    rank_of: Callable[[ir.Value], int | None],
) -> int | SizeOf | None:
    """Read one element: a constant, or what Gather or a slice of length 1 takes from Shape."""
    for _ in range(MOST_STEPS):
        tensor = constants.tensor(value)
        if tensor is not None:
            return _one_number(tensor)
        node = None if value is None else value.producer()
        if node is None or node.domain not in STANDARD:
            return None
        if node.op_type in PASSING or casts_whole(node):
            value = node.inputs[0]
        elif node.op_type == "Shape":
            return _slice_of_shape(node)
        elif node.op_type == "Gather":
            return _gathered(node, constants)
        elif node.op_type == "Slice":
            sliced = _sliced(node, constants, rank_of)
            return sliced[0] if sliced is not None and len(sliced) == 1 else None
        else:
            return None
    return None


def casts_whole(node: ir.Node) -> bool:
    """Tell whether `node` is a Cast that leaves sizes what they are."""
    return node.op_type == "Cast" and ir.DataType(node.attributes["to"].as_int()) in WHOLE


def _slice_of_shape(node: ir.Node) -> SizeOf | None:
    first, end, source = _start(node), node.attributes.get("end"), node.inputs[0]
    if source is None or end is None or first < 0 or end.as_int() != first + 1:
        return None
    return SizeOf(source, first)


def _sliced(
    node: ir.Node, constants: ConstantLookup, rank_of: Callable[[ir.Value], int | None]
) -> list[int | SizeOf] | None:
    """Return what a Slice with constant ends takes from a shape, axes numbered from the first."""
    axes = _axes(node.inputs[0], constants, rank_of)
    ends = [_one_number(constants.tensor(v)) for v in node.inputs[1:]]
    if axes is None or len(ends) < 2 or ends[2:] not in ([], [0], [0, 1]):
        return None  # behind the ends are the axis and the step
    if ends[0] is None or ends[1] is None:
        return None
    return [*axes[ends[0] : ends[1]]]


def _axes(
    vector: ir.Value | None,
    constants: ConstantLookup,
    rank_of: Callable[[ir.Value], int | None],
) -> list[SizeOf] | None:
    """Return the sizes of all axes of a value, or of those that a Gather takes; else None."""
    node = None if vector is None else vector.producer()
    if node is not None and node.op_type == "Gather":
        return _reordered(node, constants)
    source = _shape_node(vector)
    if source is None or "end" in source.attributes:
        return None
    value = source.inputs[0]
    rank = None if value is None else rank_of(value)
    if value is None or rank is None or _start(source) != 0:
        return None
    return [SizeOf(value, i) for i in range(rank)]


def _reordered(node: ir.Node, constants: ConstantLookup) -> list[SizeOf] | None:
    """Return Gather(Shape, vector), as ONNX Runtime writes a Transpose's shape; else None."""
    if node.op_type != "Gather" or node.domain not in STANDARD:
        return None
    source, indices = _shape_node(node.inputs[0]), constants.tensor(node.inputs[1])
    if source is None or source.inputs[0] is None or indices is None or len(indices.shape) != 1:
        return None
    numbers = whole_numbers(indices)
    if numbers is None or min(numbers, default=0) < 0 or _start(source) != 0:
        return None
    return [SizeOf(source.inputs[0], axis) for axis in numbers]


def _gathered(node: ir.Node, constants: ConstantLookup) -> SizeOf | None:
    source, axis = _shape_node(node.inputs[0]), _one_number(constants.tensor(node.inputs[1]))
    if axis is None:
        return None
    within = node.inputs[0].producer() if node.inputs[0] is not None else None
    reordered = None if within is None else _reordered(within, constants)
    if reordered is not None:
        return reordered[axis] if 0 <= axis < len(reordered) else None
    if source is None:
        return None
    value = source.inputs[0]
    if value is None or axis < 0 or _start(source) != 0:
        return None
    return SizeOf(value, axis)


def _start(shape: ir.Node) -> int:
    """Return the first axis that a Shape node tells of."""
    given = shape.attributes.get("start")
    return 0 if given is None else given.as_int()


def _shape_node(value: ir.Value | None) -> ir.Node | None:
    node = None if value is None else value.producer()
    return (
        node if node is not None and node.op_type == "Shape" and node.domain in STANDARD else None
    )
