"""Which activations have rows that are NaN everywhere or nowhere.

ONNX Runtime's maximum skips NaN, so a quantized row that holds one must be marked by a sum over the
row: a pass over the activation. Where a NaN anywhere in the row has already spread over all of it,
the maximum is NaN by itself and the pass is saved. That holds for

- the output of a normalization over the last axis, whose mean and variance see the whole row,
- the output of a layer quantized per row here, whose row scale is NaN,
- what elementwise operators make of such values, of constants, and of one number a row.

An overflow of float32 inside such an elementwise operator (`inf - inf`, `0 * inf`) can make a
single NaN; that is beyond 3.4e38 and not looked for.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.onnx.constants import Constants

NORMALIZATIONS = frozenset(
    "LayerNormalization SimplifiedLayerNormalization SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization RMSNormalization EmbedLayerNormalization".split()
)
UNARY = frozenset(
    "Identity Relu Gelu FastGelu QuickGelu Erf Tanh Sigmoid Silu Neg Abs Sqrt Exp Cast Dropout "
    "LeakyRelu Elu Softplus HardSigmoid HardSwish Reciprocal".split()
)
BINARY = frozenset("Add Sum Sub Mul Div Pow BiasGelu".split())
MAX_DEPTH = 24


class UniformRows:
    """Answers for the values of one model while it is being converted."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self._known: dict[int, bool] = {}
        self._alive: list[ir.Value] = []  # keeps ids valid

    def mark(self, value: ir.Value) -> None:
        """States that `value` comes out of a layer quantized per row."""
        self._known[id(value)] = True
        self._alive.append(value)

    def __call__(self, value: ir.Value) -> bool:
        """Whether each row of `value` (along its last axis) is NaN everywhere or nowhere."""
        return self._uniform(value, MAX_DEPTH)

    def _uniform(self, value: ir.Value, depth: int) -> bool:
        known = self._known.get(id(value))
        if known is not None:
            return known
        answer = depth > 0 and self._from_producer(value, depth - 1)
        self._known[id(value)] = answer
        self._alive.append(value)
        return answer

    def _from_producer(self, value: ir.Value, depth: int) -> bool:
        node = value.producer()
        if node is None:
            return False
        op = node.op_type
        if op in NORMALIZATIONS:
            axis = node.attributes.get("axis")
            return value.index() == 0 and (axis is None or axis.as_int() == -1)
        if op in UNARY:
            first = node.inputs[0]
            return first is not None and self._uniform(first, depth)
        if op in BINARY:
            if op == "Sub" and _minus_its_mean(node):
                return True
            operands = [i for i in node.inputs if i is not None]
            uniform = [self._uniform(i, depth) for i in operands]
            return any(uniform) and all(
                u or self._finite_constant(i) or _one_number_a_row(i)
                for u, i in zip(uniform, operands, strict=True)
            )
        return False

    def _finite_constant(self, value: ir.Value) -> bool:
        tensor = self._constants.tensor(value)
        if tensor is None or tensor.size > 1 << 16:
            return False
        return bool(np.isfinite(np.asarray(tensor.numpy(), np.float64)).all())


def _minus_its_mean(node: ir.Node) -> bool:
    x, mean = node.inputs[0], node.inputs[1]
    maker = None if mean is None else mean.producer()
    return maker is not None and _reduces_last(maker) and maker.inputs[0] is x


def _one_number_a_row(value: ir.Value) -> bool:
    """Whether `value` follows from a mean over the last axis by steps on that one number."""
    for _ in range(6):
        node = value.producer()
        if node is None:
            return False
        if _reduces_last(node):
            return True
        if node.op_type not in ("Sqrt", "Add", "Reciprocal", "Max", "Identity", "Cast", "Pow"):
            return False
        first = node.inputs[0]
        if first is None:
            return False
        if first.producer() is None and len(node.inputs) > 1 and node.inputs[1] is not None:
            first = node.inputs[1]
        value = first
    return False


def _reduces_last(node: ir.Node) -> bool:
    if node.op_type not in ("ReduceMean", "ReduceSum"):
        return False
    keep = node.attributes.get("keepdims")
    if keep is not None and keep.as_int() == 0:
        return False
    axes = node.attributes.get("axes")
    if axes is not None:
        return list(axes.as_ints()) == [-1]
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        tensor = ir.convenience.get_const_tensor(node.inputs[1])
        return tensor is not None and tensor.numpy().ravel().tolist() == [-1]
    return False
