"""Normalizations of rows  ->  one Norm node each.

    x ─ Pow ─ ReduceMean ─ Add ─ Sqrt ─ Div ─ Mul  ->  Norm(x), kind "rms"
    LayerNormalization(x), SimplifiedLayerNormalization(x), RMSNormalization(x)  ->  Norm(x)
    SkipLayerNormalization(x, y), SkipSimplifiedLayerNormalization(x, y)  ->  Norm(Add(x, y))

`octavo.graph.analysis.norms` finds those that are written out. The Add goes into the layer in front
of it, as any other does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.fixed_values import FixedValues
from octavo.graph.analysis.norms import FoundNorm, normalized, spelt_norms
from octavo.graph.context import Context
from octavo.ir import MS
from octavo.ir.norm import LAYER_NORM, RMS_NORM, Norm

STANDARD = ("", "ai.onnx")
NAMED = {
    "LayerNormalization": LAYER_NORM,
    "SimplifiedLayerNormalization": RMS_NORM,
    "RMSNormalization": RMS_NORM,
}
WITH_SKIP = {
    "SkipLayerNormalization": LAYER_NORM,
    "SkipSimplifiedLayerNormalization": RMS_NORM,
}
EPSILON, EPSILON_OF_SKIP = 1e-5, 1e-12
"""Where the attribute is not given."""


def reference(
    x: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64],
    bias: npt.NDArray[np.float64] | float,
    kind: str,
    epsilon: float,
) -> npt.NDArray[np.float64]:
    """Compute the reference in float64: x [..., N], weight and bias [N]."""
    return normalized(x, kind, epsilon) * weight + bias


# docs/notes/native_target.md: "A normalization is known by its values"
def fuse_norms(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every normalization of `graph` that one node may replace.

    What is the same in every run is left to ONNX Runtime, which computes it once (fixed_inputs.py).
    """
    fixed = FixedValues(Fixed(c.constants))
    for node in list(graph):
        if not node.inputs or fixed.of(node.inputs[0]):
            continue
        if node.op_type in WITH_SKIP and node.domain == MS:
            _draw_skip(node, c)
        elif node.op_type in NAMED and node.domain in STANDARD:
            _draw_named(node, c)
    for found in spelt_norms(graph, c.constants):
        if not fixed.of(found.x):
            _draw_spelt(found, c)
    return {}


def _draw_spelt(found: FoundNorm, c: Context) -> None:
    last = found.last
    weight, bias = (
        None if row is None else c.emitter.constant(row, f"{last.outputs[0].name}_{what}")
        for row, what in ((found.weight, "weight"), (found.bias, "bias"))
    )
    assert weight is not None
    _put(Norm(found.x, weight, bias, found.kind, found.epsilon), last, c)


def _draw_named(node: ir.Node, c: Context) -> None:
    kind, x = NAMED[node.op_type], node.inputs[0]
    if x is None or not _is_over_last(node, x) or _reads_more_than(node, 1):
        return
    rows = _rows(node.inputs[1:], c)
    if rows is not None:
        _put(Norm(x, *rows, kind, _epsilon(node, EPSILON)), node, c)


def _draw_skip(node: ir.Node, c: Context) -> None:
    kind, (x, skip, *given) = WITH_SKIP[node.op_type], node.inputs
    sum_ = node.outputs[3] if len(node.outputs) > 3 else None
    between = [o for o in node.outputs[1:3] if o.uses() or o.is_graph_output()]
    # Behind the weight, and the bias of the kind that has one, stands one of what is added.
    shifts = 2 if kind == LAYER_NORM else 1
    rows, added = _rows(given[:shifts], c), given[shifts : shifts + 1]
    if x is None or skip is None or rows is None or between:
        return
    e, out = c.emitter, node.outputs[0].name or "norm"
    if added and added[0] is not None:
        x = e.op("Add", [x, added[0]], out=f"{out}_biased")
    x = e.op("Add", [x, skip], out=f"{out}_sum")
    norm = Norm(x, *rows, kind, _epsilon(node, EPSILON_OF_SKIP))
    (y,) = c.put(norm, name=f"{out}/Norm", outs=[out])
    c.replace(node, [y] if sum_ is None else [y, None, None, x])


def _put(norm: Norm, last: ir.Node, c: Context) -> None:
    out = last.outputs[0].name or "norm"
    c.replace(last, c.put(norm, name=f"{out}/Norm", outs=[out]))


def _epsilon(node: ir.Node, otherwise: float) -> float:
    given = node.attributes.get("epsilon")
    return otherwise if given is None else given.as_float()


def _is_over_last(node: ir.Node, x: ir.Value) -> bool:
    given = node.attributes.get("axis")
    axis = -1 if given is None else given.as_int()
    return axis == -1 or (x.shape is not None and axis == len(x.shape) - 1)


def _reads_more_than(node: ir.Node, outputs: int) -> bool:
    return any(o.uses() or o.is_graph_output() for o in node.outputs[outputs:])


def _rows(given: Sequence[ir.Value | None], c: Context) -> tuple[ir.Value, ir.Value | None] | None:
    """Weight and bias; None where they are not stored float32 vectors."""
    weight, bias = (*given, None, None)[:2]
    for value in (weight, bias):
        tensor = c.constants.tensor(value)
        if value is None:
            continue
        if tensor is None or tensor.dtype is not ir.DataType.FLOAT or len(tensor.shape) != 1:
            return None
    return None if weight is None else (weight, bias)
