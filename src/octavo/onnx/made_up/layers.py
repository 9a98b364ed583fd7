"""What the first layer that reads an input needs of its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.flow import Flow
from octavo.onnx.made_up.paths import Reading, readings
from octavo.onnx.made_up.stored import attribute_int, read_by, sizes

_SAME_SHAPE_STEPS = frozenset(
    "Cast Identity Relu Tanh Sigmoid Dropout Clip Neg Abs LayerNormalization BatchNormalization "
    "InstanceNormalization".split()
)
_WITH_CONSTANT = frozenset(["Add", "Sub", "Mul", "Div"])


@dataclass(frozen=True)
class Wish:
    """The rank and the sizes of single axes that a layer needs of its input.

    `time` and `batch` are the axes that a recurrent layer takes for these.
    """

    rank: int | None = None
    dims: Mapping[int, int] = field(default_factory=dict)
    time: int | None = None
    batch: int | None = None


def wanted_shape(value: ir.Value, flow: Flow, constants: Constants) -> Wish:
    """What the first layer that reads `value` needs of its shape."""

    def same_shape(node: ir.Node, index: int) -> bool:
        if node.op_type in _WITH_CONSTANT and len(node.inputs) == 2:
            other = sizes(node.inputs[1 - index], constants)
            return other is not None and all(n == 1 for n in other)
        return index == 0 and node.op_type in _SAME_SHAPE_STEPS

    for reading in readings(value, flow, constants, same_shape):
        wish = None if reading.is_lost else _wish(reading, constants)
        if wish is not None:
            return wish
    return Wish()


def _wish(reading: Reading, constants: Constants) -> Wish | None:
    node = reading.node
    if reading.slot != 0 or len(node.inputs) < 2:
        return None
    shape = _stored_sizes(node, 1, constants)
    if shape is None:
        return None
    found = _layer(node, shape, _stored_sizes(node, 2, constants) or ())
    if found is None:
        return None
    dims = {reading.axis(axis): size for axis, size in found.items()}
    rank = len(shape) if reading.axes is None else sum(a is not None for a in reading.axes)
    time = batch = None
    if node.op_type in ("LSTM", "GRU", "RNN"):
        batch_first = attribute_int(node, "layout", 0)
        time, batch = reading.axis(batch_first), reading.axis(1 - batch_first)
    return Wish(rank, {a: n for a, n in dims.items() if a is not None}, time, batch)


def _stored_sizes(node: ir.Node, index: int, constants: Constants) -> tuple[int, ...] | None:
    value = read_by(node, index)
    return sizes(value, constants) if constants.is_constant(value) else None


def _layer(node: ir.Node, weight: tuple[int, ...], bias: tuple[int, ...]) -> dict[int, int] | None:
    """Sizes by axis of what the layer reads; None for other nodes."""
    rank = len(weight)
    if node.op_type in ("MatMul", "FusedMatMul") and rank >= 2:
        if attribute_int(node, "transA", 0):
            return None
        inputs = weight[-1 if attribute_int(node, "transB", 0) else -2]
        return {-1: inputs} | {i - rank: n for i, n in enumerate(weight[:-2]) if n != 1}
    if node.op_type == "Gemm" and rank == 2 and not attribute_int(node, "transA", 0):
        rows = {0: bias[0]} if len(bias) == 2 and bias[0] != 1 else {}
        return {1: weight[1 if attribute_int(node, "transB", 0) else 0]} | rows
    if node.op_type == "Conv" and rank >= 3:
        return {1: weight[1] * attribute_int(node, "group", 1)}
    if node.op_type in ("LSTM", "GRU", "RNN") and rank == 3:
        return {2: weight[2]}
    return None
