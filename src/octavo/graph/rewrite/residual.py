"""Linear ─ Add(another activation)  ->  Linear with that residual.

The operator adds any residual that broadcasts with its outputs, so that the rule need not know
shapes; one of the outputs' own shape costs nothing.
"""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.nodes import only_reader
from octavo.graph.context import Context
from octavo.graph.rewrite.replace import replace
from octavo.ir.linear import Linear


def reference(y: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What is taken over, in float64: y [..., N] and `other`, which broadcasts with it."""
    summed: npt.NDArray[np.float64] = np.asarray(y, np.float64) + np.asarray(other, np.float64)
    return summed


# docs/notes/native_target.md: "A residual need not have the layer's shape"
def fold(node: ir.Node, c: Context) -> ir.Node | None:
    """The new node where the rule fits `node`."""
    linear = Linear.of(node)
    assert linear is not None
    reader = only_reader(node.outputs[0])
    if reader is None or linear.residual is not None:
        return None
    add, index = reader
    if add.op_type != "Add" or add.domain not in ("", "ai.onnx"):
        return None
    other = add.inputs[1 - index]
    if other is None or (other.shape is not None and len(other.shape) < 2):
        return None
    return replace(node, add, changed(linear, residual=other), c)
