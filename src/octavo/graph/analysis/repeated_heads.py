"""Heads of keys and values that are repeated for groups of queries.

[B, K, T, D] ─ Unsqueeze(2) ─ Expand[B, K, n, T, D] ─ Reshape[B, K * n, T, D]
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.heads import is_standard
from octavo.graph.analysis.ranks import Ranks

MOST_STEPS = 4


def repeated(
    reshape: ir.Node, axis: int, constants: ConstantLookup, ranks: Ranks
) -> tuple[ir.Value, int] | None:
    """Return the value whose heads `reshape` repeats in a row along `axis`, and how often."""
    made = _maker(reshape, "Reshape")
    if made is None or made.op_type not in ("Expand", "Tile"):
        return None
    apart = _maker(made, made.op_type)
    if apart is None or not is_standard(apart, "Unsqueeze") or not apart.inputs[0]:
        return None
    source = apart.inputs[0]
    if ranks(source) != 4 or _axes(apart, constants) != [axis + 1]:
        return None
    parts = _parts(made.inputs[1], constants)
    joined = _parts(reshape.inputs[1], constants)
    if parts is None or len(parts) != 5 or joined is None or len(joined) != 4:
        return None
    count = _number(parts[axis + 1], constants)
    if count is None or count < 1:
        return None
    others = [part for i, part in enumerate(parts) if i != axis + 1]
    if made.op_type == "Tile" and any(_number(part, constants) != 1 for part in others):
        return None
    multiple = _is_multiple(joined[axis], source, axis, count, constants)
    return (source, count) if multiple else None


def _maker(node: ir.Node, op_type: str) -> ir.Node | None:
    if not is_standard(node, op_type) or node.inputs[0] is None:
        return None
    return node.inputs[0].producer()


def _axes(unsqueeze: ir.Node, constants: ConstantLookup) -> list[int] | None:
    given = unsqueeze.attributes.get("axes")
    if given is not None:
        return list(given.as_ints())
    found = sizes(unsqueeze.inputs[1], constants) if len(unsqueeze.inputs) > 1 else None
    return None if found is None else [i for i in found if isinstance(i, int)]


def _parts(shape: ir.Value | None, constants: ConstantLookup) -> list[ir.Value | int] | None:
    """Return the elements of a shape: numbers, and vectors of one element."""
    for _ in range(MOST_STEPS):
        node = None if shape is None else shape.producer()
        numbers = sizes(shape, constants)
        if numbers is not None and all(isinstance(n, int) for n in numbers):
            return [n for n in numbers if isinstance(n, int)]
        if node is None:
            return None
        if is_standard(node, "Where"):  # of what is not -1, where that is 1
            equal = None if node.inputs[0] is None else node.inputs[0].producer()
            if equal is None or equal.op_type != "Equal" or equal.inputs[0] is not node.inputs[2]:
                return None
            shape = node.inputs[2]
        elif is_standard(node, "Identity") or (
            is_standard(node, "Reshape") and sizes(node.inputs[1], constants) == [-1]
        ):
            shape = node.inputs[0]
        elif is_standard(node, "Concat"):
            return _elements(node, constants)
        else:
            return None
    return None


def _elements(concat: ir.Node, constants: ConstantLookup) -> list[ir.Value | int] | None:
    found: list[ir.Value | int] = []
    for part in concat.inputs:
        known = sizes(part, constants)
        if part is None or (known is not None and len(known) != 1):
            return None
        found.append(known[0] if known is not None and isinstance(known[0], int) else part)
    return found


def _number(part: ir.Value | int, constants: ConstantLookup) -> int | None:
    if isinstance(part, int):
        return part
    found = sizes(part, constants)
    return found[0] if found is not None and isinstance(found[0], int) else None


def _is_multiple(
    part: ir.Value | int, source: ir.Value, axis: int, count: int, constants: ConstantLookup
) -> bool:
    """Tell whether `part` is `count` times the heads of `source`."""
    if isinstance(part, int):
        return part > 0 and part % count == 0
    node = part.producer()
    while node is not None and node.op_type in ("Unsqueeze", "Squeeze", "Reshape", "Cast"):
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    if node is None or not is_standard(node, "Mul"):
        return False
    for i in (0, 1):
        heads, times = sizes(node.inputs[i], constants), sizes(node.inputs[1 - i], constants)
        if heads == [SizeOf(source, axis)] and times == [count]:
            return True
    return False
