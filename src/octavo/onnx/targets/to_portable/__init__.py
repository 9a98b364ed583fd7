"""From target native to portable: ONNX Runtime's own operators, the same integers. One operator,
one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.errors import ModelError
from octavo.graph.native import DOMAIN
from octavo.graph.native.embedding import EmbeddingNode
from octavo.graph.walk import graphs_of
from octavo.onnx.targets.to_portable import attention, conv, embedding, linear, matmul, recurrent
from octavo.onnx.targets.turning import Outputs, Turning

DRAWERS: Mapping[str, Callable[[ir.Node, Turning], Outputs]] = {
    "Linear": linear.draw,
    "GroupedLinear": linear.draw_grouped,
    "Attention": attention.draw,
    "Conv": conv.draw,
    "Embedding": embedding.draw,
    "MatMul": matmul.draw,
    "LSTM": recurrent.draw,
    "GRU": recurrent.draw,
    "RNN": recurrent.draw,
}
"""By the names of our operators."""


def turn(t: Turning) -> None:
    """Draws every operator of ours anew. Raises ModelError for one that this version lacks."""
    found = [node for graph in graphs_of(t.model) for node in graph if node.domain == DOMAIN]
    for node in found:
        table = EmbeddingNode.of(node)
        if table is not None and table.packed:
            t.tables.add(table.table.w)
    for node in found:
        drawer = DRAWERS.get(node.op_type)
        if drawer is None:
            raise ModelError(
                f"{node.name!r} is {DOMAIN}.{node.op_type}, an operator that this version of "
                "octavo does not have; install the version that wrote the file, or a newer one"
            )
        t.replace(node, drawer(node, t), node.op_type)
    t.model.opset_imports.pop(DOMAIN, None)
