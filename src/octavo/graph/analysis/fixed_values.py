"""Values that are the same in every run: what nodes make of stored numbers alone.

    table [512, 768] ─ LayerNormalization ─ MatMul     (DeBERTa's relative positions)

ONNX Runtime computes what its own operators make of them once, when it opens the file.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.walk import bodies_of

RANDOM = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split()
)
STOCK = frozenset(("", "ai.onnx", "com.microsoft"))


class FixedValues:
    """Answers for the values of one model, whose nodes may be replaced meanwhile."""

    def __init__(self, constants: ConstantLookup) -> None:
        self._constants = constants
        self._known: dict[ir.Value, bool] = {}

    def of(self, value: ir.Value | None) -> bool:
        """Tell whether `value` is stored, or made of stored numbers by operators of stock alone."""
        if value is None:
            return False
        stack = [value]
        while stack:
            v = stack[-1]
            unknown = [] if v in self._known else self._settle(v)
            stack.extend(unknown)
            if not unknown:
                stack.pop()
        return self._known[value]

    def _settle(self, value: ir.Value) -> list[ir.Value]:
        """Tells of `value`, or gives the inputs of its node of which has to be told before."""
        node = value.producer()
        if node is None or self._constants.tensor(value) is not None:
            self._known[value] = self._constants.tensor(value) is not None
            return []
        inputs = [i for i in node.inputs if i is not None]
        if not inputs or not _is_determined(node):
            self._known[value] = False
            return []
        if any(self._known.get(i) is False for i in inputs):
            self._known[value] = False
            return []
        unknown = [i for i in inputs if i not in self._known]
        if not unknown:
            self._known[value] = True
        return unknown


def _is_determined(node: ir.Node) -> bool:
    """Tell whether equal inputs give equal outputs, as the inputs show, in ONNX Runtime's hands."""
    return node.domain in STOCK and node.op_type not in RANDOM and not bodies_of(node)
