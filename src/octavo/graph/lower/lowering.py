"""Lowers every operator of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from octavo.errors import ModelError
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.context import Context
from octavo.graph.lower import (
    activation_products,
    attention,
    cached_attention,
    conv,
    embedding,
    linear,
    norm,
    recurrent,
    rotary,
)
from octavo.graph.lower.linear import share_tables
from octavo.ir import DOMAIN
from octavo.ir.activation_products import Attention, MatMul
from octavo.ir.cached_attention import CachedAttention
from octavo.ir.conv import Conv
from octavo.ir.embedding import Embedding
from octavo.ir.linear import GatedLinear, GroupedLinear, Linear
from octavo.ir.norm import Norm
from octavo.ir.operator import KEY, Operator
from octavo.ir.recurrent import Recurrent
from octavo.ir.rotary import Rotary

Lower = Callable[[Any, ir.Node, Context], Sequence["ir.Value | None"]]

LOWERINGS: Mapping[type[Operator], Lower] = {
    Linear: linear.lower,
    GroupedLinear: linear.lower_grouped,
    GatedLinear: linear.lower_gated,
    Attention: attention.lower_attention,
    CachedAttention: cached_attention.lower,
    Conv: conv.lower,
    Embedding: embedding.lower,
    MatMul: activation_products.lower_matmul,
    Norm: norm.lower,
    Recurrent: recurrent.lower,
    Rotary: rotary.lower,
}


def operator_of(node: ir.Node) -> Operator:
    """Return the operator that a node of domain ai.octavo stands for.

    Raises ModelError for an operator that is not known.
    """
    held = node.meta.get(KEY)
    kinds = LOWERINGS if held is None else (type(held),)
    for kind in kinds:
        found = kind.of(node)
        if found is not None:
            return found
    raise ModelError(
        f"{node.name!r} is {DOMAIN}.{node.op_type}, an operator that this version of "
        "octavo does not have; install the version that wrote the file, or a newer one"
    )


def held_by_stock(operator: Operator) -> bool:
    """Tell whether its weights are settled for stock operators, so that it is only ever lowered."""
    if isinstance(operator, MatMul):
        return operator.per_tensor_b
    return isinstance(operator, Linear | Conv) and operator.weight.matrix is not None


def lower_operators(c: Context, which: Callable[[Operator], bool] = lambda operator: True) -> None:
    """Draws every operator of the model, or those of a kind, with stock ones."""
    nodes = [node for graph in graphs_of(c.model) for node in graph if node.domain == DOMAIN]
    found = [(node, operator) for node in nodes if which(operator := operator_of(node))]
    share_tables([operator for _, operator in found], c)
    for node, _ in found:
        lower_node(node, c)
    if not c.has_operators():
        c.model.opset_imports.pop(DOMAIN, None)


def lower_node(node: ir.Node, c: Context) -> None:
    """Replace `node` by stock operators that compute what it stands for."""
    operator = operator_of(node)
    c.names.nodes.free(node.name)
    outputs = LOWERINGS[type(operator)](operator, node, c)
    c.replace(node, outputs, node.op_type)
