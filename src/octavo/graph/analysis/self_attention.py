"""Which attentions leave rows NaN everywhere or nowhere, so that no sum has to look for one.

Q, K and V are products of one activation x. A row of x that is not finite makes the whole row of V
so, and that every row of what the attention gives, in all heads: a weight times it is NaN or
infinite, be the weight 0. Where all of x is finite, only the mask can bring NaN, into whole rows of
weights; and one mask for all heads brings it into those of all heads. An overflow of float32 is not
looked for, as in `uniform_rows`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.attentions import FoundAttention
from octavo.graph.analysis.constants import Constants
from octavo.graph.analysis.dims import Dims
from octavo.graph.analysis.kept_axes import float_layer

HEADS = -3
"""Their axis in the scores [batch, heads, queries, keys]."""


def rows_stay_whole(attention: FoundAttention, constants: Constants, dims: Dims) -> bool:
    """Whether the rows of `attention` are so if those of its Q, K and V are."""
    parts = attention.q, attention.k, attention.v
    sources = {_multiplied(heads.source, constants) for heads in parts}
    if len(sources) != 1 or None in sources or not np.isfinite(attention.scale):
        return False
    return attention.bias is None or _is_one_for_all_heads(attention.bias, dims)


def _multiplied(value: ir.Value, constants: Constants) -> ir.Value | None:
    """x where `value` is x times a constant matrix, and perhaps a bias added."""
    found: ir.Value | None = value
    while found is not None:
        node = found.producer()
        layer = None if node is None else float_layer(node, constants)
        if node is None or layer is None:
            return None
        found = layer.source
        if node.op_type == "MatMul":
            return found
    return None


def _is_one_for_all_heads(mask: ir.Value, dims: Dims) -> bool:
    found = dims(mask)
    return found is not None and (len(found) < -HEADS or found[HEADS] == 1)
