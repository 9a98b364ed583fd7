"""What the nodes that read an input of integers say of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

import onnx_ir as ir

from octavo.onnx.inputs.dataflow import MOVES, Dataflow, attribute_int, input_at, moves_or_picks

_SHIFTS = frozenset(["Add", "Sub"])
_BOUNDS = frozenset(["Clip", "Max", "Min", "Mod", "Abs", "Relu"])
_ORDERS = frozenset(["Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
_LOOKUPS = frozenset("Gather GatherElements GatherND ScatterND ScatterElements".split())
_TOWARD_IF = MOVES | frozenset(
    "And Or Not Xor Equal Less LessOrEqual Greater GreaterOrEqual ReduceMax ReduceMin ReduceSum "
    "ReduceProd Gather Where Add Mul Concat".split()
)
_TOWARD_WAVES = MOVES | frozenset("Mul Div MatMul Einsum Concat Add Sub Gemm".split())
_MOST_STEPS = 8


class Use(Enum):
    """What integers may be to a node that reads them."""

    LENGTH = auto()
    LAST = auto()  # the place of the last token, which is a length less one
    COUNT = auto()
    TYPE = auto()
    POSITION = auto()
    TOTAL = auto()
    SIZE = auto()
    INDEX = auto()  # into what the model computes
    BRANCH = auto()
    WAVE = auto()


# Inputs of operators that say by themselves what they take.
_SLOTS: dict[Use, frozenset[tuple[str, int]]] = {
    Use.LENGTH: frozenset(
        [("LSTM", 4), ("GRU", 4), ("RNN", 4), ("ReverseSequence", 1), ("GroupQueryAttention", 5)]
    ),
    Use.LAST: frozenset([("GroupQueryAttention", 5)]),
    Use.TOTAL: frozenset([("GroupQueryAttention", 6)]),
    Use.COUNT: frozenset([("TopK", 1), ("NonMaxSuppression", 2)]),
    Use.TYPE: frozenset([("EmbedLayerNormalization", 1)]),
    Use.POSITION: frozenset([("EmbedLayerNormalization", 8), ("RotaryEmbedding", 1)]),
    Use.SIZE: frozenset(
        [
            ("Reshape", 1),
            ("Expand", 1),
            ("Tile", 1),
            ("Slice", 1),
            ("Resize", 3),
            ("ConstantOfShape", 0),
        ]
    ),
}


@dataclass
class IntegerUses:
    """What the readers of one input say of its integers: `rows` of tables that they look up, and
    numbers that they are compared with."""

    rows: list[int] = field(default_factory=list)
    equal_to: list[int] = field(default_factory=list)
    ordered_with: list[int] = field(default_factory=list)
    uses: set[Use] = field(default_factory=set)

    def __contains__(self, use: Use) -> bool:
        return use in self.uses


def integer_uses(value: ir.Value, flow: Dataflow) -> IntegerUses:
    """Collect the uses of `value` by nodes, through those that keep or shift its numbers."""
    shifts: dict[ir.Value, int] = {}
    found = IntegerUses()

    def goes_on(node: ir.Node, index: int) -> bool:
        source = node.inputs[index]
        shift = shifts.get(source, 0) if source is not None else 0
        if node.op_type in _SHIFTS and len(node.inputs) == 2:
            other = flow.whole(node.inputs[1 - index])
            if other is None or (node.op_type == "Sub" and index == 1):
                return False
            shift += other if node.op_type == "Add" else -other
        elif not moves_or_picks(node, index) and not (node.op_type in _BOUNDS and index == 0):
            return False
        for out in node.outputs:
            shifts[out] = shift
        return True

    for node, index, at in flow.reads(value, goes_on):
        _look(found, node, index, flow, shifts.get(at, 0))
    if flow.reaches(value, ("If",), _toward_if):
        found.uses.add(Use.BRANCH)
    if flow.reaches(value, ("Sin", "Cos"), lambda node, _: node.op_type in _TOWARD_WAVES):
        found.uses.add(Use.WAVE)
    return found


def _toward_if(node: ir.Node, index: int) -> bool:
    return node.op_type in _TOWARD_IF and not (node.op_type == "Gather" and index == 1)


def _look(found: IntegerUses, node: ir.Node, index: int, flow: Dataflow, shift: int) -> None:
    rows = _rows(node, index, flow)
    if rows is not None:
        found.rows.append(max(1, rows - max(shift, 0)))
    elif node.op_type in _LOOKUPS and index == 1:
        found.uses.add(Use.INDEX)
    if node.op_type == "Equal" or node.op_type in _ORDERS:
        _compared(found, node, index, flow, shift)
    if _ends_range(node, index):
        found.uses.add(Use.LENGTH)
    found.uses |= {use for use, slots in _SLOTS.items() if (node.op_type, index) in slots}


def _compared(found: IntegerUses, node: ir.Node, index: int, flow: Dataflow, shift: int) -> None:
    other = input_at(node, 1 - index)
    number = flow.number(other)
    if number is not None:
        kept = found.equal_to if node.op_type == "Equal" else found.ordered_with
        if math.isfinite(number) and int(number) - shift not in kept:
            kept.append(int(number) - shift)
    elif node.op_type == "Equal":
        if kinds := _stored_range(other, flow):
            found.rows.append(max(1, kinds - max(shift, 0)))  # one-hot, written out
    else:
        several = flow.numbers(other)
        if several is None or len(several) > 1:
            found.uses.add(Use.LENGTH)


def _stored_range(value: ir.Value | None, flow: Dataflow) -> int | None:
    """Count the numbers in the stored row `value`, also where expanded; None if it is no row."""
    for _ in range(_MOST_STEPS):
        node = None if value is None else value.producer()
        if value is None or flow.is_constant(value) or node is None:
            break
        value = input_at(node, 0) if node.op_type in MOVES else None
    shape = flow.sizes(value) if flow.is_constant(value) else None
    return max(shape) if shape and max(shape) > 1 and max(shape) == math.prod(shape) else None


def _ends_range(node: ir.Node, index: int) -> bool:
    """Tell whether a range ends where the input says."""
    if node.op_type == "Range":
        return index == 1
    is_longest = node.op_type == "ReduceMax"
    return is_longest and any(n.op_type == "Range" for out in node.outputs for n in _readers(out))


def _readers(value: ir.Value) -> Iterator[ir.Node]:
    """Yield the nodes that read `value`, and those behind one node that only moves the value."""
    for node, _ in value.uses():
        yield node
        if node.op_type in MOVES:
            yield from (n for out in node.outputs for n, _ in out.uses())


def _rows(node: ir.Node, index: int, flow: Dataflow) -> int | None:
    """Return the length of the table axis that input `index` of `node` looks up, or None."""
    op, table, axis = node.op_type, None, attribute_int(node, "axis", 0)
    if op in ("Gather", "GatherBlockQuantized") and index == 1:
        table = input_at(node, 0)
    elif op == "EmbedLayerNormalization" and index in (0, 1, 8):
        table, axis = input_at(node, {0: 2, 1: 4, 8: 3}[index]), 0
    elif op == "OneHot" and index == 0:
        depth = flow.whole(input_at(node, 1))
        return None if depth is None else max(1, depth)
    maker = None if table is None else table.producer()
    is_dequantized = maker is not None and maker.op_type == "DequantizeLinear"
    shape = flow.sizes(table) if flow.is_constant(table) or is_dequantized else None
    return shape[axis] if shape and -len(shape) <= axis < len(shape) else None
