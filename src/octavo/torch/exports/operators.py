"""Puts operators in the place of every quantized layer of a traced model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.core.attention_type import AttentionType
from octavo.core.form import Form
from octavo.graph.analysis.attentions import attentions_of
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.lower.lowering import lower_operators
from octavo.graph.lower.packed import pack_operators
from octavo.graph.rewrite.attention_type import FLOAT32_ALONE
from octavo.graph.rewrite.passes import rewrite, rewrite_lowered
from octavo.torch.exports.embedding_bag import read_embedding_bag
from octavo.torch.exports.layers import (
    read_conv,
    read_embedding,
    read_half_linear,
    read_linear,
    read_packed_embedding,
)
from octavo.torch.exports.program import DOMAIN
from octavo.torch.exports.reading import ExportContext, Outputs
from octavo.torch.exports.recurrent import read_recurrent

READERS: Mapping[str, Callable[[ir.Node, ExportContext], Outputs]] = {
    "linear": read_linear,
    "half_linear": read_half_linear,
    "embedding": read_embedding,
    "packed_embedding": read_packed_embedding,
    "embedding_bag": read_embedding_bag,
    "conv": read_conv,
    "recurrent": read_recurrent,
}
"""By the names of the operators in `torch.ops.octavo`."""


def replace_layers(
    model: ir.Model, form: Form, attention: AttentionType = AttentionType.FLOAT32
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Rewrites `model` for `form`; how many layers of each operator there were, and notes."""
    c = ExportContext(model, native=form.native, cpu=form.cpu)
    c.attention = attention
    found = [node for graph in graphs_of(model) for node in graph if node.domain == DOMAIN]
    for node in found:
        c.replace(node, READERS[node.op_type](node, c))
    model.opset_imports.pop(DOMAIN, None)
    if c.native:
        rewrite(c)
        pack_operators(c)
    else:
        lower_operators(c)
        rewrite_lowered(
            c,
            (
                attention
                for graph in graphs_of(model)
                for attention in attentions_of(graph, c.constants, c.opset, None)
            ),
        )
    if attention is not AttentionType.FLOAT32 and not form.native:
        c.note(None, FLOAT32_ALONE)
    c.finish()
    return dict(Counter(node.op_type for node in found)), c.notes()
