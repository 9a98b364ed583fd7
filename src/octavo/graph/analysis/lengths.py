"""What decides how long a result is: numbers that a model computes, rounds and makes a shape of.

    table -> ... -> Exp -> Ceil -> ReduceSum -> Range        how long each sound of a text lasts

A small error moves a number over the border between two integers, and what follows has another
length.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from octavo.graph.analysis.walk import Callers

_FROM = {"Range": 0, "ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Tile": 1, "Resize": 2}
_FROM |= {"Slice": 1, "Pad": 1, "OneHot": 1, "Loop": 0}
"""The first input that tells a shape."""
_TO = {"OneHot": 2, "Loop": 1, "Pad": 2}
"""The input behind the last one that does, where others follow."""
_ROUNDING = frozenset("Ceil Floor Round Mod".split())
_WHOLE = frozenset(int(t) for t in ir.DataType if t.is_integer())
_NO_NUMBERS = frozenset("Shape Size ArgMax ArgMin NonZero TopK".split())
"""What these give is not computed from numbers, or chosen among them."""


def before_lengths(model: ir.Model) -> frozenset[ir.Value]:
    """Return the values from which rounded numbers that make up a shape are computed."""
    callers = Callers(model)
    stack = [
        (value, node.op_type == "Resize" and value is node.inputs[2])  # scales are rounded there
        for node in callers.nodes
        if node.op_type in _FROM
        for value in node.inputs[_FROM[node.op_type] : _TO.get(node.op_type)]
        if value is not None
    ]
    seen = set(stack)
    while stack:
        value, rounded = stack.pop()
        new = [pair for pair in _before(value, rounded, callers) if pair not in seen]
        seen.update(new)
        stack += new
    return frozenset(value for value, rounded in seen if rounded)


def _before(value: ir.Value, rounded: bool, callers: Callers) -> Iterator[tuple[ir.Value, bool]]:
    node = value.producer()
    if node is None:
        yield from ((v, rounded) for v in callers.given(value))
        return
    if node.op_type in _NO_NUMBERS:
        return
    rounded = rounded or node.op_type in _ROUNDING or _makes_whole(node)
    yield from ((v, rounded) for v in callers.inside(node, value.index() or 0))
    yield from ((v, rounded) for v in node.inputs if v is not None)


def _makes_whole(node: ir.Node) -> bool:
    """Tell whether a Cast makes integers of what may be none."""
    to = node.attributes.get("to") if node.op_type == "Cast" else None
    value = node.inputs[0] if node.inputs else None
    is_whole = value is not None and value.dtype is not None and value.dtype.is_integer()
    return to is not None and to.as_int() in _WHOLE and not is_whole
