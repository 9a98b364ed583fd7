"""How many axes values have, where the model does not say: from those of what they are made of."""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.constants import Constants
from octavo.graph.native.fusions._sizes import sizes
from octavo.graph.walk import graphs_of

SAME = frozenset(
    "LayerNormalization SkipLayerNormalization BiasGelu FastGelu Identity Dropout Cast Relu Gelu "
    "Tanh Sigmoid Erf Softmax Sqrt Neg Abs Exp Log Reciprocal Slice Transpose Concat".split()
)
"""Their first output has the rank of their first input."""
BROADCASTING = frozenset("Add Sub Mul Div Pow Sum Max Min Where".split())
DOMAINS = ("", "ai.onnx", "com.microsoft")


class Ranks:
    """Answers for the values of one model as it is now."""

    def __init__(self, model: ir.Model, constants: Constants) -> None:
        self._constants = constants
        self._found: dict[ir.Value, int] = {}
        for graph in graphs_of(model):
            for node in graph:
                rank = self._made(node) if node.domain in DOMAINS and node.outputs else None
                if rank is not None:
                    self._found[node.outputs[0]] = rank

    def __call__(self, value: ir.Value | None) -> int | None:
        """The number of axes of `value`; None where nobody knows."""
        if value is None:
            return None
        if value.shape is not None:
            return len(value.shape)
        tensor = self._constants.tensor(value)
        return self._found.get(value) if tensor is None else len(tensor.shape)

    def _made(self, node: ir.Node) -> int | None:
        """Of the node's first output."""
        op, inputs = node.op_type, node.inputs
        if op == "Reshape":
            shape = sizes(inputs[1], self._constants)
            return None if shape is None else len(shape)
        if op in SAME:
            return self(inputs[0])
        if op in BROADCASTING or op in ("MatMul", "Gather"):
            of = [self(i) for i in inputs]
            known = [rank for rank in of if rank is not None]
            if len(known) < len(of):
                return None
            if op == "Gather":
                return sum(known) - 1
            if op == "MatMul" and min(known) < 2:
                return None
            return max(known)
        return None
