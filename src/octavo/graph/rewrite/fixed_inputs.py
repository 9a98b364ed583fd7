"""A Linear over values that are the same in every run  ->  float operators over its integers.

    table ─ LayerNormalization ─ Linear(W)   ->   ... ─ MatMul(Cast(W) * scale) ─ Add(bias)

ONNX Runtime computes all of it once, when it opens the file, as it does for the float model. It
would run an operator of ai.octavo in every call: of DeBERTa's layers those over the positions cost
more than those over the tokens. Rows are not quantized, so that nothing is lost either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.fixed_values import FixedValues
from octavo.graph.context import Context
from octavo.graph.lower.linear import lower_in_float
from octavo.ir.linear import Linear


def reference(
    x: npt.NDArray[Any], w: npt.NDArray[Any], bias: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Compute the reference in float64: x [..., K], w [N, K], bias [N] -> [..., N]."""
    y: npt.NDArray[np.float64] = np.asarray(x, np.float64) @ np.asarray(w, np.float64).T + bias
    return y


# docs/notes/native_target.md: "What is the same in every run is computed once"
def unpack_fixed(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Unpack every layer of `graph` over fixed values, in order: its outputs are fixed too."""
    fixed = FixedValues(Fixed(c.constants))
    count = 0
    for node in list(graph):
        linear = Linear.of(node)
        if linear is None or not fixed.of(linear.x):
            continue
        c.names.nodes.free(node.name)
        c.replace(node, [lower_in_float(linear, node, c)])
        count += 1
    return {"layers read what is the same in every run, and are computed once, in float": count}
