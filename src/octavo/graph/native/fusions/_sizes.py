"""What a shape that the graph computes is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.constants import Constants

PASSING = frozenset("Cast Identity Squeeze Unsqueeze".split())  # one number stays that number
MOST_STEPS = 16


@dataclass(frozen=True)
class SizeOf:
    """The size of one axis of a value, taken while the model runs."""

    value: ir.Value
    axis: int


def sizes(shape: ir.Value | None, constants: Constants) -> list[int | SizeOf] | None:
    """The elements of an int64 vector: numbers, and sizes of other values; None for anything else.

    Known are constants, Concat, and what Shape, Slice and Gather take from a shape.
    """
    if shape is None:
        return None
    tensor = constants.tensor(shape)
    if tensor is not None:
        return [int(i) for i in np.asarray(tensor.numpy()).reshape(-1)]
    node = shape.producer()
    if node is None or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Concat":
        found: list[int | SizeOf] = []
        for part in node.inputs:
            elements = sizes(part, constants)
            if elements is None:
                return None
            found += elements
        return found
    if node.op_type == "Slice":
        return _sliced(node, constants)
    one = _size(shape, constants)
    return None if one is None else [one]


def _size(value: ir.Value | None, constants: Constants) -> int | SizeOf | None:
    """One element: a constant, or what Gather or a slice of length 1 takes from Shape."""
    for _ in range(MOST_STEPS):
        tensor = constants.tensor(value)
        if tensor is not None:
            return int(np.asarray(tensor.numpy()).reshape(-1)[0]) if tensor.size == 1 else None
        node = None if value is None else value.producer()
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in PASSING:
            value = node.inputs[0]
        elif node.op_type == "Shape":
            return _slice_of_shape(node)
        elif node.op_type == "Gather":
            return _gathered(node, constants)
        else:
            return None
    return None


def _slice_of_shape(node: ir.Node) -> SizeOf | None:
    start, end = node.attributes.get("start"), node.attributes.get("end")
    first = 0 if start is None else start.as_int()
    source = node.inputs[0]
    if source is None or end is None or first < 0 or end.as_int() != first + 1:
        return None
    return SizeOf(source, first)


def _sliced(node: ir.Node, constants: Constants) -> list[int | SizeOf] | None:
    """What a Slice with constant ends takes from Shape; the axes are numbered from the first."""
    source = None if node.inputs[0] is None else node.inputs[0].producer()
    if source is None or source.op_type != "Shape" or "end" in source.attributes:
        return None
    first = source.attributes.get("start")
    if first is not None and first.as_int() != 0:
        return None
    value = source.inputs[0]
    ends = [constants.tensor(v) for v in node.inputs[1:]]
    if value is None or value.shape is None or any(t is None or t.size != 1 for t in ends):
        return None
    start, end, *rest = (int(np.asarray(t.numpy()).reshape(-1)[0]) for t in ends if t is not None)
    if rest not in ([], [0], [0, 1]):  # the axis and the step
        return None
    return [SizeOf(value, i) for i in range(len(value.shape))[start:end]]


def _gathered(node: ir.Node, constants: Constants) -> SizeOf | None:
    shape, index = node.inputs[0], constants.tensor(node.inputs[1])
    source = None if shape is None else shape.producer()
    if source is None or source.op_type != "Shape" or index is None or index.size != 1:
        return None
    axis = int(np.asarray(index.numpy()).reshape(-1)[0])
    value = source.inputs[0]
    if value is None or axis < 0 or source.attributes.get("start") is not None:
        return None
    return SizeOf(value, axis)
