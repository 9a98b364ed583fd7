"""What stands around a Linear or Conv node and can be done in its pass. One rule, one file.

A rule looks at one node and at what reads it, and draws the node anew with more in it; and
`attention` makes one node of what stands between the projections and the output layer. Rules change
no numbers but by the rounding of float32: each states in float64 what it takes over.
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.constants import Constants
from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN
from octavo.graph.native.conv import ConvNode
from octavo.graph.native.fusions import (
    bias,
    gelu,
    gelu_tanh,
    grouped,
    max_pool,
    relu,
    residual,
    sigmoid,
    silu,
    tanh,
)
from octavo.graph.native.fusions._activation import fold_activation
from octavo.graph.native.fusions.attention import fuse_attention
from octavo.graph.native.linear import LinearNode
from octavo.graph.sweeper import Sweeper
from octavo.graph.walk import graphs_of

ACTIVATIONS = (relu, gelu, gelu_tanh, silu, tanh, sigmoid)
BEHIND_POOLS = (relu,)  # the largest of activated numbers is the activated largest, to the bit


def fuse(model: ir.Model, e: Emitter, constants: Constants, sweeper: Sweeper) -> list[str]:
    """Applies every rule to every Linear and Conv node of `model`, as often as one fits.

    Returns notes on what became of parts of the model that hold no weights.
    """
    attentions = 0
    for graph in graphs_of(model):
        for node in [n for n in graph if n.domain == DOMAIN]:
            if LinearNode.of(node) is not None:
                _absorb(node, e, constants, sweeper)
            else:
                _absorb_images(node, e, constants, sweeper)
        grouped.group_all(graph, e, sweeper)
        attentions += fuse_attention(graph, e, constants, sweeper)
    return [f"{attentions} attentions became one node each, in float32"] if attentions else []


def _absorb_images(node: ir.Node, e: Emitter, constants: Constants, sweeper: Sweeper) -> None:
    found: ir.Node | None = node
    while found is not None:
        node = found
        layer = ConvNode.of(node)
        rules = BEHIND_POOLS if layer is not None and layer.pool else ACTIVATIONS
        found = fold_activation(node, rules, e, constants, sweeper) or max_pool.fold(
            node, e, sweeper
        )


def _absorb(node: ir.Node, e: Emitter, constants: Constants, sweeper: Sweeper) -> None:
    found: ir.Node | None = node
    while found is not None:
        node = found
        found = (
            bias.fold(node, e, constants, sweeper)
            or fold_activation(node, ACTIVATIONS, e, constants, sweeper)
            or residual.fold(node, e, sweeper)
        )
