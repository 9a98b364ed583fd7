"""Stored numbers that stand beside an input, without loading large ones."""

from __future__ import annotations

import math

import onnx_ir as ir

from octavo.errors import OctavoError
from octavo.onnx.constants import Constants

_FEW = 64


def read_by(node: ir.Node, index: int) -> ir.Value | None:
    """What `node` reads as its input number `index`; None where it has none."""
    return node.inputs[index] if 0 <= index < len(node.inputs) else None


def number(value: ir.Value | None, constants: Constants) -> float | None:
    """A stored number, where all elements are that number."""
    found = numbers(value, constants)
    return found[0] if found and len(set(found)) == 1 else None


def whole(value: ir.Value | None, constants: Constants) -> int | None:
    """A stored number that is finite, without what is behind the point."""
    found = number(value, constants)
    return None if found is None or not math.isfinite(found) else int(found)


def numbers(value: ir.Value | None, constants: Constants) -> list[float] | None:
    """The elements of a small constant."""
    if value is None:
        return None
    try:
        tensor = constants.tensor(value)
        if tensor is not None:
            if tensor.size > _FEW or tensor.dtype is ir.DataType.STRING:
                return None
            found: list[float] = tensor.numpy().ravel().tolist()
            return found
        producer = value.producer()
        if producer is None or not constants.is_constant(value):
            return None
        if producer.op_type in ("Expand", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Cast"):
            return numbers(read_by(producer, 0), constants)
    except (OctavoError, ValueError, TypeError, AttributeError):
        return None  # of a type that has no numbers, as text
    return None


def sizes(value: ir.Value | None, constants: Constants) -> tuple[int, ...] | None:
    """The shape of a stored table, also where its numbers are held as integers."""
    while value is not None and not constants.is_constant(value):
        node = value.producer()
        if node is None or node.op_type not in ("DequantizeLinear", "Identity", "Cast"):
            break
        value = node.inputs[0] if node.inputs else None
    if value is None:
        return None
    known = static(value)
    if known is not None or not constants.is_constant(value):
        return known
    try:
        return constants.shape(value)
    except (OctavoError, ValueError, TypeError, AssertionError):
        return None


def static(value: ir.Value) -> tuple[int, ...] | None:
    """The sizes that the model states of a value, where all are numbers."""
    if value.shape is None:
        return None
    dims = [d if isinstance(d, int) else None for d in value.shape]
    return None if None in dims else tuple(d for d in dims if d is not None)


def attribute_ints(node: ir.Node, name: str) -> tuple[int, ...] | None:
    """An attribute that is a list of integers; None where the node has none of that name."""
    found = node.attributes.get(name)
    if found is None or found.type is not ir.AttributeType.INTS:
        return None
    return tuple(found.as_ints())


def attribute_int(node: ir.Node, name: str, default: int) -> int:
    """An attribute that is an integer."""
    found = node.attributes.get(name)
    if found is None or found.type is not ir.AttributeType.INT:
        return default
    return found.as_int()
