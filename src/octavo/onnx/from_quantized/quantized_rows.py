"""Finds the float activation behind the integers that a product reads.

    x ─ Mul(1 / r) ─ QuantizeLinear                            narrow, and per image
    x ─ Reshape ─ QuantizeLinear(r * step, axis 0) ─ Reshape    wide
    x ─ DynamicQuantizeLinear ─ [Transpose and the like]       per tensor

r is the range of each row, which the product's result is multiplied by: `octavo.graph.emit.rows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.walk import only_reader
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.from_quantized.trace_moves import move, trace

RANGE_OPS = frozenset(
    "Abs Add Flatten Max Mul Neg ReduceMax ReduceMin ReduceSum Reshape Slice".split()
)
MOST_STEPS = 16


@dataclass(frozen=True)
class Rows:
    """What `q` was made of: `x`, with `row` for each row's range and `step` for one integer.

    Both are None where `scale` and `zero_point` are those of the whole tensor.
    """

    x: ir.Value
    row: ir.Value | None = None
    step: np.float32 | None = None
    scale: ir.Value | None = None
    zero_point: ir.Value | None = None


def rows_of(q: ir.Value | None, t: RestoringContext) -> Rows | None:
    """Return the activation behind `q`, if it is quantized in one of the known forms."""
    node = None if q is None else q.producer()
    if q is None or node is None:
        return None
    found = _wide(node, t) if node.op_type == "Reshape" else _narrow(node, t)
    if found is not None and _is_range(found.row, found.x, t):
        return found
    return _whole(q, t)


def _whole(q: ir.Value, t: RestoringContext) -> Rows | None:
    source, moves = trace(q)
    maker = source.producer()
    if maker is None or maker.op_type != "DynamicQuantizeLinear" or maker.inputs[0] is None:
        return None
    _, scale, zero_point = maker.outputs
    return Rows(move(maker.inputs[0], moves, t), scale=scale, zero_point=zero_point)


def _narrow(node: ir.Node, t: RestoringContext) -> Rows | None:
    if node.op_type != "QuantizeLinear" or len(node.inputs) != 3:
        return None
    ratio, step = made_by(node.inputs[0], "Mul"), number(node.inputs[1], t)
    inverse = None if ratio is None else made_by(ratio.inputs[1], "Reciprocal")
    if ratio is None or step is None or inverse is None:
        return None
    x, row = ratio.inputs[0], inverse.inputs[0]
    return None if x is None or row is None else Rows(x, row, step)


def _wide(node: ir.Node, t: RestoringContext) -> Rows | None:
    quantized, shape = made_by(node.inputs[0], "QuantizeLinear"), made_by(node.inputs[1], "Shape")
    if quantized is None or shape is None or len(quantized.inputs) != 3:
        return None
    flat, scales = made_by(quantized.inputs[0], "Reshape"), made_by(quantized.inputs[1], "Reshape")
    if flat is None or scales is None or not _same_shape(flat.inputs[0], shape.inputs[0], t):
        return None
    product = made_by(scales.inputs[0], "Mul")
    if product is None:
        return None
    x, (row, factor) = flat.inputs[0], product.inputs
    step = number(factor, t)
    return None if x is None or row is None or step is None else Rows(x, row, step)


def _same_shape(x: ir.Value | None, of: ir.Value | None, t: RestoringContext) -> bool:
    """Activations of the same sizes share one Shape: `octavo.graph.emit.quantized_inputs`."""
    sizes = t.dims(x)
    return x is of or (sizes is not None and None not in sizes and sizes == t.dims(of))


def _is_range(row: ir.Value | None, x: ir.Value, t: RestoringContext) -> bool:
    """Tell whether `row` is computed from the extremes of `x`, and from nothing else."""
    stack, seen, reduced = [row], 0, False
    while stack:
        value = stack.pop()
        seen += 1
        if value is x or (value is not None and t.constants.tensor(value) is not None):
            continue
        node = None if value is None else value.producer()
        if node is None or node.op_type not in RANGE_OPS or seen > MOST_STEPS:
            return False
        reduced = reduced or node.op_type == "ReduceMax"
        stack.extend(node.inputs)
    return reduced


def made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """Return the node that makes `value`, if it is a standard `op_type`."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != op_type or node.domain not in ("", "ai.onnx"):
        return None
    return node


def number(value: ir.Value | None, t: RestoringContext) -> np.float32 | None:
    """Return the number in a constant of one element; None for another value."""
    tensor = t.constants.tensor(value)
    if tensor is None or tensor.size != 1:
        return None
    found: np.float32 = np.float32(tensor.numpy().reshape(())[()])
    return found


def read_by(value: ir.Value, op_type: str) -> ir.Node | None:
    """Return the one node that reads `value`, in the same graph, if it is a standard `op_type`."""
    reader = only_reader(value)
    if reader is None or reader[0].op_type != op_type or reader[0].domain not in ("", "ai.onnx"):
        return None
    return reader[0]


def other(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """Return the operand of `node`, which has two, that is not `value`."""
    if len(node.inputs) != 2:
        return None
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]
