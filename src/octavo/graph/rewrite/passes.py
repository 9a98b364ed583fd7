"""What is done with operators before they are lowered or packed, in order.

A pass looks at operators and at what stands around them, and puts operators that take in more in
their places. Passes change no numbers but by the rounding of float32: each states in float64 what
it takes over. `rewrite` runs those of files that hold operators as they are (`PASSES`). A portable
file keeps what stands around its layers as it was; `rewrite_lowered` has the passes over stock
operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import onnx_ir as ir

from octavo.graph.analysis.attentions import FoundAttention
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.context import Context
from octavo.graph.rewrite import group_linears, pool
from octavo.graph.rewrite.activation import ACTIVATIONS, BEHIND_POOLS, fold_activation
from octavo.graph.rewrite.additions import fold_bias, fold_residual
from octavo.graph.rewrite.attention import fuse_attention
from octavo.graph.rewrite.attention_type import allow_bfloat16
from octavo.graph.rewrite.fixed_inputs import unpack_fixed
from octavo.graph.rewrite.flat_rows import keep_axes
from octavo.graph.rewrite.fold_sizes import fold_sizes
from octavo.graph.rewrite.gates import fuse_gates
from octavo.graph.rewrite.gathered_columns import slice_columns
from octavo.graph.rewrite.group_query import fuse_group_query
from octavo.graph.rewrite.head_shapes import Shapes, make_constant
from octavo.graph.rewrite.merge_qkv import merge_qkv
from octavo.graph.rewrite.named_attention import fuse_multi_head, fuse_standard
from octavo.graph.rewrite.named_rotary import fuse_named_rotary
from octavo.graph.rewrite.norms import fuse_norms
from octavo.graph.rewrite.packed_heads import split_packed_heads
from octavo.graph.rewrite.rotary import fuse_rotary
from octavo.graph.rewrite.split_columns import split_columns
from octavo.ir import DOMAIN
from octavo.ir.conv import Conv
from octavo.ir.linear import Linear

Counts = Mapping[str, int]
"""What a pass did that the report speaks of, and how often."""

Fold = Callable[[ir.Node, Context], "ir.Node | None"]
"""Puts a node that takes in more in the place of one; None where the rule does not fit."""


def _activation(node: ir.Node, c: Context) -> ir.Node | None:
    conv = Conv.of(node)
    rules = BEHIND_POOLS if conv is not None and conv.pool else ACTIVATIONS
    return fold_activation(node, rules, c)


FOLDS: dict[type[Linear] | type[Conv], tuple[Fold, ...]] = {
    Linear: (keep_axes, fold_bias, _activation, fold_residual),
    Conv: (_activation, pool.fold),
}
"""What a node of each operator takes in, as often as one fits."""


def _absorb(graph: ir.Graph, c: Context) -> Counts:
    for node in [n for n in graph if n.domain == DOMAIN]:
        for kind, folds in FOLDS.items():
            found: ir.Node | None = node
            while found is not None and kind.of(found) is not None:
                found = next((new for fold in folds if (new := fold(found, c))), None)
    return {}


PASSES: tuple[Callable[[ir.Graph, Context], Counts], ...] = (
    fold_sizes,
    slice_columns,
    fuse_norms,
    fuse_multi_head,
    _absorb,
    split_packed_heads,
    split_columns,
    _absorb,
    unpack_fixed,
    fuse_gates,
    group_linears.group_all,
    fuse_standard,
    fuse_group_query,
    fuse_named_rotary,
    fuse_rotary,
    fuse_attention,
    allow_bfloat16,
)
"""In order."""


def rewrite(c: Context) -> list[str]:
    """Run every pass over every graph of the model.

    Returns notes on what became of parts of the model that hold no weights.
    """
    found: Counter[str] = Counter()
    for graph in graphs_of(c.model):
        for run in PASSES:
            found.update(run(graph, c))
    return [f"{count} {what}" for what, count in found.items() if count]


def rewrite_lowered(
    c: Context, attentions: Iterable[FoundAttention], shapes: Shapes | None = None
) -> list[str]:
    """Run the passes over lowered layers that have a scale for each row, in order.

    `attentions` are those whose projections become one product; `shapes` are what Reshapes of
    attentions may be given as constants. Returns notes on what was done.
    """
    if not c.activations.have_rows:
        return []
    changed = merge_qkv(list(attentions), c.emitter, c.constants, c.sweeper)
    return changed + make_constant(shapes or {}, c.emitter, c.sweeper)
