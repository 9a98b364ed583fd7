"""What an input of integers is: by the nodes that read it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.flow import MOVES, Flow, moves_or_picks
from octavo.onnx.made_up.stored import attribute_int, number, numbers, read_by, sizes, whole

_SHIFTS = frozenset(["Add", "Sub"])
_BOUNDS = frozenset(["Clip", "Max", "Min", "Mod", "Abs", "Relu"])
_ORDERS = frozenset(["Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
_TOWARD_IF = MOVES | frozenset(
    "And Or Not Xor Equal Less LessOrEqual Greater GreaterOrEqual ReduceMax ReduceMin ReduceSum "
    "ReduceProd Gather Where Add Mul Concat".split()
)
_MOST_STEPS = 8
_WAVES = frozenset(["Sin", "Cos"])
_TOWARD_WAVES = MOVES | frozenset("Mul Div MatMul Einsum Concat Add Sub Gemm".split())
_SIZED = {"Reshape": 1, "Expand": 1, "Tile": 1, "ConstantOfShape": 0, "Resize": 3, "Slice": 1}
# Inputs of operators that say by themselves what they take: (operator, index).
_LENGTHS = frozenset(
    [("LSTM", 4), ("GRU", 4), ("RNN", 4), ("ReverseSequence", 1), ("GroupQueryAttention", 5)]
)
_COUNTS = frozenset([("TopK", 1), ("NonMaxSuppression", 2)])
_TYPES = frozenset([("EmbedLayerNormalization", 1)])
_POSITIONS = frozenset([("EmbedLayerNormalization", 8), ("RotaryEmbedding", 1)])
_LAST = frozenset([("GroupQueryAttention", 5)])
_TOTALS = frozenset([("GroupQueryAttention", 6)])


@dataclass
class Facts:
    """What the readers of one input say of its integers."""

    rows: list[int] = field(default_factory=list)
    equal_to: list[int] = field(default_factory=list)
    ordered_with: list[int] = field(default_factory=list)
    indexes_data: bool = False
    is_length: bool = False
    is_last: bool = False
    is_count: bool = False
    is_type: bool = False
    is_position: bool = False
    is_total: bool = False
    is_size: bool = False
    steers: bool = False
    waves: bool = False


def facts(value: ir.Value, flow: Flow, constants: Constants) -> Facts:
    """Looks at the nodes that read `value`, through those that keep or shift its numbers."""
    shifts: dict[ir.Value, int] = {}
    found = Facts()

    def goes_on(node: ir.Node, index: int) -> bool:
        source = node.inputs[index]
        shift = shifts.get(source, 0) if source is not None else 0
        if node.op_type in _SHIFTS and len(node.inputs) == 2:
            other = whole(node.inputs[1 - index], constants)
            if other is None or (node.op_type == "Sub" and index == 1):
                return False
            shift += other if node.op_type == "Add" else -other
        elif not moves_or_picks(node, index) and not (node.op_type in _BOUNDS and index == 0):
            return False
        for out in node.outputs:
            shifts[out] = shift
        return True

    for node, index, at in flow.reads(value, goes_on):
        _look(found, node, index, constants, shifts.get(at, 0))
    found.steers = any(n.op_type == "If" for n, _, _ in flow.reads(value, _toward_if))
    found.waves = any(n.op_type in _WAVES for n, _, _ in flow.reads(value, _toward_waves))
    return found


def _toward_if(node: ir.Node, index: int) -> bool:
    return node.op_type in _TOWARD_IF and not (node.op_type == "Gather" and index == 1)


def _toward_waves(node: ir.Node, index: int) -> bool:
    return node.op_type in _TOWARD_WAVES


def _look(found: Facts, node: ir.Node, index: int, constants: Constants, shift: int) -> None:
    slot = (node.op_type, index)
    rows = _rows(node, index, constants)
    if rows is not None:
        found.rows.append(max(1, rows - max(shift, 0)))
    elif node.op_type in ("Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements"):
        found.indexes_data = found.indexes_data or index == 1
    if node.op_type == "Equal" or node.op_type in _ORDERS:
        _compared(found, node, index, constants, shift)
    found.is_length = found.is_length or slot in _LENGTHS or _counts_down(node, index)
    found.is_last = found.is_last or slot in _LAST
    found.is_count = found.is_count or slot in _COUNTS
    found.is_type = found.is_type or slot in _TYPES
    found.is_position = found.is_position or slot in _POSITIONS
    found.is_total = found.is_total or slot in _TOTALS
    found.is_size = found.is_size or _SIZED.get(node.op_type) == index


def _compared(found: Facts, node: ir.Node, index: int, constants: Constants, shift: int) -> None:
    other = read_by(node, 1 - index)
    alone = number(other, constants)
    if alone is not None and math.isfinite(alone):
        kept = found.equal_to if node.op_type == "Equal" else found.ordered_with
        if int(alone) - shift not in kept:
            kept.append(int(alone) - shift)
    elif alone is None and node.op_type == "Equal" and (kinds := _range(other, constants)):
        found.rows.append(max(1, kinds - max(shift, 0)))  # one-hot, written out
    elif alone is None and node.op_type in _ORDERS:
        several = numbers(other, constants)
        found.is_length = found.is_length or several is None or len(several) > 1


def _range(value: ir.Value | None, constants: Constants) -> int | None:
    """How many numbers are in a stored row of them, also where it is expanded."""
    for _ in range(_MOST_STEPS):
        node = None if value is None else value.producer()
        if value is None or constants.is_constant(value) or node is None:
            break
        value = read_by(node, 0) if node.op_type in MOVES else None
    shape = sizes(value, constants) if constants.is_constant(value) else None
    return max(shape) if shape and max(shape) > 1 and max(shape) == math.prod(shape) else None


def _counts_down(node: ir.Node, index: int) -> bool:
    """Whether a range ends where the input says."""
    if node.op_type == "Range":
        return index == 1
    after = [n for out in node.outputs for n in _next(out)] if node.op_type == "ReduceMax" else []
    return any(n.op_type == "Range" for n in after)


def _next(value: ir.Value) -> list[ir.Node]:
    """Readers of `value`, behind one node that only moves it."""
    found = []
    for node, _ in value.uses():
        found.append(node)
        if node.op_type in MOVES:
            found += [n for o in node.outputs for n, _ in o.uses()]
    return found


def _rows(node: ir.Node, index: int, constants: Constants) -> int | None:
    """The length of the axis of a stored table that input `index` of `node` looks up."""
    op, table, axis = node.op_type, None, attribute_int(node, "axis", 0)
    if op in ("Gather", "GatherBlockQuantized") and index == 1:
        table = read_by(node, 0)
    elif op == "EmbedLayerNormalization" and index in (0, 1, 8):
        table, axis = read_by(node, {0: 2, 1: 4, 8: 3}[index]), 0
    elif op == "OneHot" and index == 0:
        depth = whole(read_by(node, 1), constants)
        return None if depth is None else max(1, depth)
    if table is None or not constants.is_constant(table):
        shape = sizes(table, constants) if table is not None and _is_stored(table) else None
    else:
        shape = sizes(table, constants)
    return shape[axis] if shape and -len(shape) <= axis < len(shape) else None


def _is_stored(table: ir.Value) -> bool:
    node = table.producer()
    return node is not None and node.op_type == "DequantizeLinear"
