"""Which attentions leave rows NaN everywhere or nowhere, so that no sum has to look for one.

Q, K and V are products of one activation x. A row of x that is not finite makes the whole row of V
so, and that every row of what the attention gives, in all heads: a weight times it is NaN or
infinite, be the weight 0. Where all of x is finite so is the rest, if the mask is; an overflow of
float32 is not looked for, as in `uniform`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from octavo.graph.constants import Constants
from octavo.graph.native.fusions._rows import float_layer
from octavo.graph.native.fusions.attention import Attention

MOST_VALUES = 64
MAX_CONSTANT = 1 << 16  # elements; a larger constant is not read only to look for infinity
ARITHMETIC = frozenset("Add Sub Mul Neg Max Min Clip".split())
MOVING = frozenset("Identity Unsqueeze Squeeze Expand Reshape Transpose Slice Flatten".split())
"""What they give are numbers of their first input."""
LOGICAL = frozenset("And Or Xor Not Equal Less LessOrEqual Greater GreaterOrEqual".split())
WHOLE = frozenset(t for t in ir.DataType if t.is_integer() or t is ir.DataType.BOOL)


def rows_stay_whole(attention: Attention, constants: Constants) -> bool:
    """Whether the rows of `attention` are so if those of its Q, K and V are."""
    parts = attention.q, attention.k, attention.v
    sources = {_multiplied(heads.source, constants) for heads in parts}
    if len(sources) != 1 or None in sources or not np.isfinite(attention.scale):
        return False
    return attention.bias is None or _is_finite(attention.bias, constants)


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


def _is_finite(value: ir.Value, constants: Constants) -> bool:
    """Whether no number of `value` is NaN or infinite, whatever the inputs of the model are."""
    stack, seen = [value], {value}
    while stack:
        reads = _finite_if(stack.pop(), constants)
        if reads is None or len(seen) > MOST_VALUES:
            return False
        new = [v for v in reads if v is not None and v not in seen]
        seen.update(new)
        stack += new
    return True


def _finite_if(value: ir.Value, constants: Constants) -> Sequence[ir.Value | None] | None:
    """The values that have to be finite for `value` to be; None where that is not enough."""
    tensor, node = constants.tensor(value), value.producer()
    if tensor is not None:
        small = tensor.size <= MAX_CONSTANT
        return [] if small and np.isfinite(np.asarray(tensor.numpy(), np.float64)).all() else None
    if value.dtype in WHOLE:
        return []
    if node is None or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in LOGICAL:
        return []
    if node.op_type in ARITHMETIC:
        return node.inputs
    if node.op_type == "Where":
        return node.inputs[1:]
    if node.op_type in MOVING or (node.op_type == "Cast" and _widens(node)):
        return node.inputs[:1]
    return None


def _widens(cast: ir.Node) -> bool:
    """Whether it gives a type that holds every whole number, and every float32."""
    return ir.DataType(cast.attributes["to"].as_int()) in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
