"""Attention  ->  Attention that multiplies in bfloat16, where the recipe allows it."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from octavo.core.attention_type import AttentionType
from octavo.graph.context import Context
from octavo.ir.activation_products import Attention
from octavo.ir.operator import KEY

IN_BFLOAT16 = "of them multiply in bfloat16, which the recipe allows"
NOWHERE = (
    "attention: bfloat16 of the recipe changed nothing, since no attention became an operator of "
    "Octavo's"
)
FLOAT32_ALONE = (
    "attention: bfloat16 of the recipe is for PyTorch and target native; ONNX Runtime's own "
    "operators multiply attention in float32"
)


def allow_bfloat16(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Let all attentions of `graph` run in bfloat16 if `c.attention` does; count them."""
    if c.attention is AttentionType.FLOAT32:
        return {}
    found = [node for node in graph if isinstance(node.meta.get(KEY), Attention)]
    for node in found:
        node.meta[KEY] = replace(node.meta[KEY], bfloat16=True)
    return {IN_BFLOAT16: len(found)}
