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

    Known are constants, Concat, Shape (whole slices of it too) and Gather from Shape.
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
