"""What the nodes that read a graph input tell about the values it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from octavo.onnx.constants import Constants

# Steps after which a number is still the same number, perhaps elsewhere.
_LOOKUP_STEPS = frozenset(
    ["Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Slice", "Expand"]
)
_SAME_SHAPE_STEPS = frozenset(["Cast", "Identity", "Relu", "Tanh", "Sigmoid", "Dropout"])


@dataclass(frozen=True)
class Wish:
    """The rank and the sizes of single axes that a layer needs of its input."""

    rank: int | None = None
    dims: Mapping[int, int] = field(default_factory=dict)


def wanted_shape(value: ir.Value, constants: Constants) -> Wish:
    """What the first layer that reads `value` needs of its shape."""
    for node, index, _ in _readers(value, _SAME_SHAPE_STEPS):
        if index != 0 or len(node.inputs) < 2 or not constants.is_constant(node.inputs[1]):
            continue
        assert node.inputs[1] is not None
        shape = constants.shape(node.inputs[1])
        added = node.inputs[2] if len(node.inputs) > 2 else None
        bias = constants.shape(added) if constants.is_constant(added) and added else ()
        wish = _wish(node, shape, bias)
        if wish is not None:
            return wish
    return Wish()


def _wish(node: ir.Node, weight: tuple[int, ...], bias: tuple[int, ...]) -> Wish | None:
    def number(name: str, default: int) -> int:
        attribute = node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    rank = len(weight)
    if node.op_type in ("MatMul", "FusedMatMul") and rank >= 2 and not number("transA", 0):
        inputs = weight[-1 if number("transB", 0) else -2]
        of_batches = {i - rank: n for i, n in enumerate(weight[:-2]) if n != 1}
        return Wish(rank, {-1: inputs} | of_batches)
    if node.op_type == "Gemm" and rank == 2 and not number("transA", 0):
        rows = {0: bias[0]} if len(bias) == 2 and bias[0] != 1 else {}
        return Wish(2, {1: weight[1 if number("transB", 0) else 0]} | rows)
    if node.op_type == "Conv" and rank >= 3:
        return Wish(rank, {1: weight[1] * number("group", 1)})
    if node.op_type in ("LSTM", "GRU", "RNN") and rank == 3:
        return Wish(3, {2: weight[2]})
    return None


def table_rows(value: ir.Value, constants: Constants) -> int | None:
    """The length of the shortest table axis that `value` indexes, or None."""
    found = []
    for node, index, _ in _readers(value, _LOOKUP_STEPS):
        table: ir.Value | None
        if node.op_type == "Gather" and index == 1:
            table = node.inputs[0]
            if table is not None and constants.is_constant(table):
                axis = node.attributes.get("axis")
                found.append(constants.shape(table)[0 if axis is None else axis.as_int()])
        elif node.op_type == "EmbedLayerNormalization" and index in (0, 1):
            table = node.inputs[2 if index == 0 else 4]
            if table is not None and constants.is_constant(table):
                found.append(constants.shape(table)[0])
    return min(found) if found else None


def compared_with(value: ir.Value, constants: Constants) -> list[int]:
    """The numbers that Equal compares `value` with, each once."""
    found = []
    for node, index, _ in _readers(value, _LOOKUP_STEPS):
        if node.op_type == "Equal":
            other = constants.tensor(node.inputs[1 - index])
            if other is not None and other.size == 1:
                found.append(int(other.numpy().ravel()[0]))
    return list(dict.fromkeys(found))


def _readers(value: ir.Value, steps: frozenset[str]) -> Iterator[tuple[ir.Node, int, ir.Value]]:
    """Nodes that read `value`, directly or through nodes of the types `steps`."""
    stack, seen = [value], set()
    while stack:
        v = stack.pop()
        for node, index in v.uses():
            yield node, index, v
            if node.op_type in steps and index == 0 and id(node) not in seen:
                seen.add(id(node))
                stack.extend(node.outputs)
