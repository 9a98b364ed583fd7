"""What lies below a logarithm: values whose small numbers count as much as their large ones.

    x -> MatMul -> Pow -> MatMul -> Clip -> Log        the mel filters over a power spectrum

A row of 8 bits has one step for all its numbers: what is a thousandth of the largest is rounded
to 0, and its logarithm says so. Softmax, Sigmoid, norms and the like forget how large a number
was, so that nothing before them matters as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.walk import Callers

_LOGARITHMS = frozenset(["Log", "ReduceLogSum"])
_OF_ALL = frozenset("Add Sub Mul Div Sum Max Min Mean Concat".split())
_OF_FIRST = frozenset(
    "Clip Sqrt Pow Abs Neg Reciprocal Identity Cast Dropout Reshape Flatten Squeeze Unsqueeze "
    "PRelu LeakyRelu Elu Selu Celu ThresholdedRelu BatchNormalization LpNormalization CumSum Trilu "
    "Resize Upsample DepthToSpace SpaceToDepth GatherElements GatherND Compress "
    "Transpose Slice Split Expand Tile Pad Gather ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2 "
    "ReduceSumSquare MaxPool GlobalMaxPool".split()
)
_MEANS = frozenset(["ReduceMean", "AveragePool", "GlobalAveragePool"])
_POWERS = frozenset("Abs Pow ReduceL1 ReduceL2 ReduceSumSquare".split())
_PRODUCTS = frozenset("MatMul Gemm Einsum FusedMatMul Conv".split())
_RAISING = frozenset(["Add", "Sum", "Max", "Clip"])


class Below(NamedTuple):
    """A value before a logarithm. `direct`: the logarithm shows what is lost in it.

    That is so up to the last product, in what a power spectrum is made of before that, and in
    products on the way that nothing but sums and factors part: `chained` says that one was passed.
    `raised`: 1 or more is added to it on the way, so that the logarithm sees no number near 0.
    """

    value: ir.Value
    direct: bool
    raised: bool
    chained: bool = False


def below_logarithms(model: ir.Model, constants: ConstantLookup) -> Iterator[Below]:
    """Values of which a logarithm is made, of bodies and functions too; some come twice."""
    walk = _Walk(model, constants)
    seen = set(stack := [Below(v, direct=True, raised=False) for v in walk.logarithms])
    while stack:
        below = stack.pop()
        yield below
        new = [b for b in walk.before(below) if b not in seen]
        seen.update(new)
        stack += [b for b in new if not constants.is_constant(b.value)]


class _Walk:
    """Against the graph. `logarithms` are the values that they read."""

    def __init__(self, model: ir.Model, constants: ConstantLookup) -> None:
        self._constants = constants
        self._callers = Callers(model)
        found = [n for n in self._callers.nodes if n.op_type in _LOGARITHMS and n.inputs]
        self.logarithms = [v for n in found if (v := n.inputs[0]) is not None]

    def before(self, below: Below) -> Iterator[Below]:
        """Yield the values that this one is computed from, as far as their small numbers matter."""
        value, direct, raised, chained = below
        node = value.producer()
        if node is None:
            yield from (below._replace(value=v) for v in self._callers.given(value))
            return
        op = node.op_type
        inside = self._callers.inside(node, value.index() or 0)
        yield from (below._replace(value=v) for v in inside)
        first = node.inputs[0] if node.inputs else None
        if op in _OF_ALL or op == "Where":
            read = list(node.inputs[op == "Where" :])
        elif op in _PRODUCTS:
            read, chained = list(node.inputs), True
        elif op in _OF_FIRST or (
            direct and not chained and (op in _MEANS or (op == "Relu" and not raised))
        ):
            read = [first]
        else:
            return
        if op in _POWERS or (op == "Mul" and first is node.inputs[1]):
            direct, chained = True, False
        elif chained and op in _OF_ALL:  # a sum with another branch, as around the blocks of a net
            direct = direct and sum(not self._constants.is_constant(v) for v in read if v) < 2
        raised = raised and op not in ("Mul", "Div")  # a factor may make 1 little
        bounds = node.inputs[1:2] if op == "Clip" else node.inputs
        raised = raised or (op in _RAISING and any(map(self._is_above_1, bounds)))
        yield from (Below(v, direct, raised, chained) for v in read if v is not None)

    def _is_above_1(self, value: ir.Value | None) -> bool:
        tensor = self._constants.tensor(value)
        is_number = tensor is not None and tensor.size == 1 and tensor.dtype.is_floating_point()
        return tensor is not None and is_number and float(tensor.numpy().item()) >= 1
