"""Which outputs of a model are scores of classes, and which are vectors, as the graph tells."""

from __future__ import annotations

import onnx_ir as ir

_SAME = frozenset("Identity Cast Reshape Squeeze Unsqueeze Transpose Slice Gather Flatten".split())
_VECTORS = frozenset(
    "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization RMSNormalization "
    "LpNormalization Tanh".split()
)
"""What hidden states and embeddings come out of."""


def holds_scores(value: ir.Value) -> bool:
    """False for an output of which the graph says that it holds vectors."""
    node = value.producer()
    while node is not None and node.op_type in _SAME and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is None or not (node.op_type in _VECTORS or _normalizes(node))


def _normalizes(node: ir.Node) -> bool:
    """A layer normalization in parts: Add(Mul(Div(.., Sqrt(..)), scale), bias)."""
    for op in ("Add", "Mul", "Div"):
        if node.op_type != op:
            return False
        if op == "Div":
            root = None if node.inputs[1] is None else node.inputs[1].producer()
            return root is not None and root.op_type == "Sqrt"
        makers = [v.producer() for v in node.inputs if v is not None]
        deeper = [m for m in makers if m is not None]
        if len(deeper) != 1:
            return False
        node = deeper[0]
    return False
