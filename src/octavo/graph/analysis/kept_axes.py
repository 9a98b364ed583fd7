"""Whether a Reshape leaves batch and length, the first two axes of a value, where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import SizeOf
from octavo.graph.analysis.constants import ConstantLookup
from octavo.ir import DOMAIN
from octavo.ir.linear import GroupedLinear, Linear

# Their first output has the first axes of their first input.
KEEPING = frozenset("LayerNormalization Identity Dropout Cast Relu Gelu Tanh Sigmoid".split())
MOST_STEPS = 8
NO_NAMES = (None, "", "?", "None", "-1", "unknown")
"""What exporters call sizes that they do not know."""


def leaves_rows(
    shape: Sequence[int | SizeOf],
    source: ir.Value,
    weights: ConstantLookup | None,
    *,
    zero_is_size: bool,
) -> bool:
    """Tell whether a Reshape's first two elements, `shape`, are the first two sizes of `source`.

    One of the two may be -1. `zero_is_size`: 0 means no elements (allowzero), not "as it was". With
    `weights`, `source` has more than two axes, and float layers may stand before it.
    """
    known = [
        _is_size(element, source, axis, weights, zero_is_size) for axis, element in enumerate(shape)
    ]
    return all(known) or (any(known) and shape[known.index(False)] == -1)


@dataclass(frozen=True)
class FloatLayer:
    """A MatMul with a constant matrix, or an Add of a constant vector, and what goes in.

    Both leave the axes of a value as they are, but for the last one.
    """

    source: ir.Value
    constant: ir.TensorProtocol


def float_layer(node: ir.Node, weights: ConstantLookup) -> FloatLayer | None:
    """Read `node` as a float layer; None where `node` is not one."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("MatMul", "Add"):
        return None
    rank = 2 if node.op_type == "MatMul" else 1
    for i in (1,) if node.op_type == "MatMul" else (0, 1):
        source, constant = node.inputs[1 - i], weights.tensor(node.inputs[i])
        if source is not None and constant is not None and len(constant.shape) == rank:
            return FloatLayer(source, constant)
    return None


def _is_size(
    element: int | SizeOf,
    source: ir.Value,
    axis: int,
    weights: ConstantLookup | None,
    zero_is_size: bool,
) -> bool:
    if isinstance(element, SizeOf):
        return element.axis == axis and _same_axis(element.value, source, axis, weights)
    if element == 0:
        return not zero_is_size
    return element > 0 and _dim(source, axis) == element


def same_size(
    a: ir.Value, i: int, b: ir.Value, j: int, weights: ConstantLookup | None = None
) -> bool:
    """Tell whether axis `i` of `a` is axis `j` of `b`, or is as long by what the model says."""
    if i == j and i < 2 and _same_axis(a, b, i, weights):
        return True
    size = _dim(a, i)
    return (a is b and i == j) or (size is not None and size == _dim(b, j))


def _same_axis(a: ir.Value, b: ir.Value, axis: int, weights: ConstantLookup | None) -> bool:
    """Tell whether `a` and `b` have one size at `axis`: by origin, or by what the model says."""
    if set(_back(a, weights)) & set(_back(b, weights)):
        return True
    size = _dim(a, axis)
    return size is not None and size == _dim(b, axis)


def known_size(size: int | ir.SymbolicDim) -> int | str | None:
    """Return a size as stated, a number or a name; None for -1, "" and the like."""
    found = size if isinstance(size, int) else size.value
    return None if found in NO_NAMES or (isinstance(found, int) and found < 0) else found


def _dim(value: ir.Value, axis: int) -> int | str | None:
    """Return the size of an axis, or its name; None where neither is known."""
    if value.shape is None or len(value.shape) <= axis:
        return None
    return known_size(value.shape[axis])


def _back(value: ir.Value, weights: ConstantLookup | None) -> Iterator[ir.Value]:
    """Yield `value`, and what `value` was made of by nodes that keep its first axes."""
    for _ in range(MOST_STEPS):
        yield value
        node = value.producer()
        source = None if node is None else _kept(node, weights)
        if source is None:
            return
        value = source


def _kept(node: ir.Node, weights: ConstantLookup | None) -> ir.Value | None:
    if node.domain == DOMAIN:
        linear = Linear.of(node)
        if GroupedLinear.of(node) or (linear is not None and linear.residual is None):
            return node.inputs[0]
        return None
    if node.op_type in KEEPING and node.inputs:
        return node.inputs[0]
    layer = None if weights is None else float_layer(node, weights)
    return None if layer is None else layer.source
