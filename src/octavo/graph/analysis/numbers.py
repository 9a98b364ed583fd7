"""Single numbers that a graph computes of constants, and of sizes that the model states.

x ─ Shape ─ Slice(last) ─ Cast ─ Sqrt ─ Reciprocal      the scale that exporters make
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import STANDARD, SizeOf, sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.heads import HeadSplits
from octavo.graph.analysis.ranks import Ranks

MOST_STEPS = 12  # nodes between a number and what it is made of; exporters write six
MOST_AXES = 4  # of a constant that stands for one number
PASSING = frozenset("Identity Cast CastLike Squeeze Unsqueeze Expand Reshape Dropout".split())
ONE: Mapping[str, Callable[[float], float]] = {
    "Sqrt": math.sqrt,
    "Reciprocal": lambda x: 1.0 / x,
    "Neg": lambda x: -x,
}
TWO: Mapping[str, Callable[[float, float], float]] = {
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Pow": lambda a, b: a**b,
}


class Numbers:
    """Answers for the values of one model."""

    def __init__(self, constants: ConstantLookup, ranks: Ranks, splits: HeadSplits) -> None:
        self._constants, self._ranks, self._splits = constants, ranks, splits

    def __call__(self, value: ir.Value | None, steps: int = MOST_STEPS) -> float | None:
        """Return the number that all elements of `value` are in every run, or None if unknown."""
        try:
            return self._number(value, steps)
        except (ArithmeticError, ValueError):
            return None

    def _number(self, value: ir.Value | None, steps: int) -> float | None:
        tensor = self._constants.tensor(value)
        if tensor is not None:
            return _only_number(tensor)
        node = None if value is None else value.producer()
        if node is None or node.domain not in STANDARD or not steps:
            return None
        if node.op_type in PASSING:
            return self._number(node.inputs[0], steps - 1)
        if node.op_type in ONE:
            x = self._number(node.inputs[0], steps - 1)
            return None if x is None else ONE[node.op_type](x)
        if node.op_type in TWO:
            a, b = (self._number(v, steps - 1) for v in node.inputs)
            return None if a is None or b is None else TWO[node.op_type](a, b)
        if node.op_type == "ConstantOfShape":
            given = node.attributes.get("value")
            return 0.0 if given is None else float(given.as_tensor().numpy().item())
        return self._size(value)

    def _size(self, value: ir.Value | None) -> float | None:
        """Return a size that is stated, or that a Reshape makes; None for another value."""
        found = sizes(value, self._constants, self._ranks)
        if found is None or len(found) != 1:
            return None
        size = found[0] if isinstance(found[0], int) else self.axis(found[0])
        return None if size is None or size < 0 else float(size)

    def axis(self, size: SizeOf) -> int | None:
        """Return the number that `size` stands for, where the model states that axis."""
        value, axis = size.value, size.axis
        for _ in range(MOST_STEPS):
            if value.shape is not None and axis < len(value.shape):
                stated = value.shape[axis]
                if isinstance(stated, int) and stated > 0:
                    return stated
            node = value.producer()
            if node is None or node.domain not in STANDARD or not node.inputs:
                return None
            if node.op_type == "Transpose" and "perm" in node.attributes:
                axis = node.attributes["perm"].as_ints()[axis]
            elif node.op_type == "Reshape":
                shape = sizes(node.inputs[1], self._constants, self._ranks)
                if shape is None or axis >= len(shape):
                    return None
                made = shape[axis]
                if isinstance(made, int):
                    return made if made > 0 else self._left(node, axis)
                value, axis = made.value, made.axis
                continue
            elif node.op_type not in ("Identity", "Cast", "Dropout"):
                return None
            if node.inputs[0] is None:
                return None
            value = node.inputs[0]
        return None

    def _left(self, reshape: ir.Node, axis: int) -> int | None:
        """Return the -1 of a Reshape that parts the heads of a layer's result, as a number."""
        split = self._splits.split(reshape)
        return None if split is None or axis < 2 else (split.heads, split.depth)[axis - 2]


def _only_number(tensor: ir.TensorProtocol) -> float | None:
    if tensor.size != 1 or len(tensor.shape) > MOST_AXES:
        return None
    return float(np.asarray(tensor.numpy()).reshape(-1)[0])
