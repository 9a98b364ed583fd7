"""Whether a Reshape leaves batch and length, the first two axes of a value, where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from octavo.graph.constants import Constants
from octavo.graph.native import DOMAIN
from octavo.graph.native.fusions._sizes import SizeOf
from octavo.graph.native.linear import GROUPED_OP, LinearNode

# Their first output has the first axes of their first input.
KEEPING = frozenset("LayerNormalization Identity Dropout Cast Relu Gelu Tanh Sigmoid".split())
MOST_STEPS = 8


def leaves_rows(
    shape: Sequence[int | SizeOf], source: ir.Value, constants: Constants, *, zero_is_size: bool
) -> bool:
    """Whether the first two elements of a Reshape's `shape` are the first two sizes of `source`.

    One of them may be -1. `zero_is_size`: 0 means no elements (allowzero), not "as it was".
    """
    known = [
        _is_size(element, source, axis, constants, zero_is_size)
        for axis, element in enumerate(shape)
    ]
    return all(known) or (any(known) and shape[known.index(False)] == -1)


def kept_by_constant(node: ir.Node, constants: Constants) -> ir.Value | None:
    """What `node` multiplies with a constant matrix or adds a constant vector to.

    Both leave all axes of a value of two and more but the last as they are.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("MatMul", "Add"):
        return None
    for i in (0, 1) if node.op_type == "Add" else (1,):
        tensor = constants.tensor(node.inputs[i])
        if tensor is not None and len(tensor.shape) == (1 if node.op_type == "Add" else 2):
            return node.inputs[1 - i]
    return None


def _is_size(
    element: int | SizeOf, source: ir.Value, axis: int, constants: Constants, zero_is_size: bool
) -> bool:
    if isinstance(element, SizeOf):
        return element.axis == axis and _same_axis(element.value, source, axis, constants)
    if element == 0:
        return not zero_is_size
    return element > 0 and _dim(source, axis) == element


def _same_axis(a: ir.Value, b: ir.Value, axis: int, constants: Constants) -> bool:
    """Whether two values have the same size there: one comes of the other, or the model says so."""
    if set(_back(a, constants)) & set(_back(b, constants)):
        return True
    size = _dim(a, axis)
    return size is not None and size == _dim(b, axis)


def _dim(value: ir.Value, axis: int) -> int | str | None:
    """A size, or its name; None where nobody knows."""
    if value.shape is None or len(value.shape) <= axis:
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else size.value


def _back(value: ir.Value, constants: Constants) -> Iterator[ir.Value]:
    """`value`, and what it was made of by nodes that keep its first axes."""
    for _ in range(MOST_STEPS):
        yield value
        node = value.producer()
        source = None if node is None else _kept(node, constants)
        if source is None:
            return
        value = source


def _kept(node: ir.Node, constants: Constants) -> ir.Value | None:
    if node.domain == DOMAIN:
        linear = LinearNode.of(node)
        if node.op_type == GROUPED_OP or (linear is not None and linear.residual is None):
            return node.inputs[0]
        return None
    if node.op_type in KEEPING and node.inputs:
        return node.inputs[0]
    return kept_by_constant(node, constants)
