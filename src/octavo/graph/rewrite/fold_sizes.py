"""Whole numbers that the graph computes of sizes which are the same in every run  ->  constants.

    y [b, s, 64] ─ Shape ─ Gather(2) ─ Div(2) ─ Unsqueeze ─ Slice   ->   Slice(32)

PyTorch's TorchScript exporter writes them wherever a module asks a tensor for its size. Passes
behind this one need not know them then, and ONNX Runtime need not run them. Values whose shape the
model does not state get the one that is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.static_sizes import StaticSizes
from octavo.graph.context import Context

FOLDED = frozenset(
    "Shape Gather Slice Concat Identity Cast Squeeze Unsqueeze Add Sub Mul Div".split()
)


def reference(shape: Sequence[int], index: int, divisor: int) -> npt.NDArray[np.int64]:
    """Compute the reference: one number of a shape, divided."""
    return np.asarray(shape[index] // divisor, np.int64)


# docs/notes/native_target.md: "Sizes are folded first"
def fold_sizes(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fold the numbers of `graph` that are computed of fixed sizes into constants."""
    static = c.once("static sizes", lambda: StaticSizes(c.model, Fixed(c.constants)))
    for node in list(graph):
        for made in node.outputs:
            if made.shape is None and (known := static(made)) is not None:
                made.shape = ir.Shape(known)
        if (
            node.graph is not graph
            or node.op_type not in FOLDED
            or node.domain not in ("", "ai.onnx")
        ):
            continue
        value = node.outputs[0]
        numbers, sizes = static.numbers(value), static(value)
        if numbers is None or sizes is None or None in numbers or value.is_graph_output():
            continue
        array = np.asarray(numbers, np.int64).reshape(() if len(sizes) == 0 else -1)
        if _is_int32(node):
            array = array.astype(np.int32)
        if value.uses():
            value.replace_all_uses_with(c.emitter.constant(array, value.name or "size"))
        c.sweeper.unused(value)
    return {}


def _is_int32(node: ir.Node) -> bool:
    """Tell whether one of the nodes in front makes int32 of what sizes are."""
    at: ir.Node | None = node
    while at is not None and at.op_type != "Shape":
        if at.op_type == "Cast":
            return at.attributes["to"].as_int() == ir.DataType.INT32.value
        at = next((v.producer() for v in at.inputs if v is not None), None)
    return False
