"""How many axes values have, where the model does not say: from those of what they are made of."""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.walk import graphs_of
from octavo.ir import DOMAIN

SAME = frozenset(
    "LayerNormalization SkipLayerNormalization BiasGelu FastGelu Identity Dropout Cast Relu Gelu "
    "Tanh Sigmoid Erf Softmax Sqrt Neg Abs Exp Log Cos Sin Sign Ceil Floor Reciprocal Slice "
    "Transpose Concat GatherElements CumSum Not Clip Tile".split()
)
"""Their first output has the rank of their first input."""
ALIKE = ("Split", "GroupedLinear")
"""So has each of theirs."""
BROADCASTING = frozenset("Add Sub Mul Div Pow Sum Max Min Where".split())
COMPARISONS = frozenset("And Or Equal Less LessOrEqual Greater GreaterOrEqual".split())
FIXED = {"Shape": 1, "Range": 1, "Flatten": 2, "Gemm": 2}
DOMAINS = ("", "ai.onnx", "com.microsoft", DOMAIN)
OURS = ("Linear", "GroupedLinear")
MOST_STEPS = 8  # nodes between a shape and the sizes that it is made of; exporters write five


class Ranks:
    """Answers for the values of one model as it is now."""

    def __init__(self, model: ir.Model, constants: ConstantLookup) -> None:
        self._constants = constants
        self._found: dict[ir.Value, int] = {}
        for graph in graphs_of(model):
            for node in graph:
                rank = self._made(node) if node.domain in DOMAINS and node.outputs else None
                if rank is not None:
                    outputs = node.outputs if node.op_type in ALIKE else node.outputs[:1]
                    self._found.update(dict.fromkeys(outputs, rank))

    def __call__(self, value: ir.Value | None) -> int | None:
        """Return the number of axes of `value`; None where it is not known."""
        if value is None:
            return None
        if value.shape is not None:
            return len(value.shape)
        tensor = self._constants.tensor(value)
        return self._found.get(value) if tensor is None else len(tensor.shape)

    def _made(self, node: ir.Node) -> int | None:
        """Count the axes of the node's first output; None where that cannot be told."""
        op, inputs = node.op_type, node.inputs
        if op == "Reshape":
            shape = sizes(inputs[1], self._constants, self)
            return None if shape is None else len(shape)
        if op in SAME or op in ALIKE or (node.domain == DOMAIN and op in OURS):
            return self(inputs[0])
        if op in FIXED:
            return FIXED[op]
        if op == "ConstantOfShape":
            return self._length(inputs[0])
        if op == "Expand":
            rank, asked = self(inputs[0]), self._length(inputs[1])
            return None if rank is None or asked is None else max(rank, asked)
        if op in ("Unsqueeze", "Squeeze"):
            return self._with_axes(node, 1 if op == "Unsqueeze" else -1)
        if op in BROADCASTING or op in COMPARISONS or op in ("MatMul", "Gather"):
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

    def _with_axes(self, node: ir.Node, sign: int) -> int | None:
        """Count the axes of what a node makes that adds axes (`sign` 1) or drops them (-1)."""
        rank, given = self(node.inputs[0]), node.attributes.get("axes")
        if given is not None:
            count: int | None = len(given.as_ints())
        else:
            count = self._length(node.inputs[1]) if len(node.inputs) > 1 else None
        return None if rank is None or count is None else rank + sign * count

    def _length(self, vector: ir.Value | None, steps: int = MOST_STEPS) -> int | None:
        """Count the elements of a shape: as many axes are asked for."""
        if vector is None or not steps or self(vector) != 1:
            return None
        tensor = self._constants.tensor(vector)
        if tensor is not None:
            return int(tensor.shape.numpy()[0])
        found = sizes(vector, self._constants, self)
        if found is not None:
            return len(found)
        node = vector.producer()
        if node is None:
            return None
        op, inputs = node.op_type, node.inputs
        if op == "Shape" and not node.attributes:
            return self(inputs[0])
        if op == "Unsqueeze":  # a vector, of one number
            return 1
        if op == "Concat":
            lengths = [self._length(part, steps - 1) for part in inputs]
            known = [length for length in lengths if length is not None]
            return sum(known) if len(known) == len(lengths) else None
        if op == "Reshape":  # a vector, of a vector
            return self._length(inputs[0], steps - 1)
        if op == "ConstantOfShape":  # as many as another vector has
            made = None if inputs[0] is None else inputs[0].producer()
            counted = made is not None and made.op_type == "Shape" and not made.attributes
            return self._length(made.inputs[0], steps - 1) if made and counted else None
        if op in BROADCASTING or op in COMPARISONS:
            parts = [1 if self(i) == 0 else self._length(i, steps - 1) for i in inputs]
            widths = [length for length in parts if length is not None]
            return max(widths) if len(widths) == len(parts) else None
        return None
