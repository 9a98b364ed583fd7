"""Sinks of an attention: a score of each head that has no value, as gpt-oss spells it.

    scores ─┬─ Concat(last axis) ─┬─────────── Sub ─ Softmax ─ Slice(all but the last) ─ MatMul(V)
    sinks ─ Expand                └ ReduceMax ──┘

It takes its share of the weights. Subtracting the largest score changes no weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.heads import is_standard

LAST = (-1, 3)
HEADS_ALONE = (0, 2, 3)
"""Axes of sinks [1, heads, 1, 1] that have size 1."""


@dataclass(frozen=True)
class Sunk:
    """What a Softmax reads, where sinks are among it."""

    scores: ir.Value
    reader: ir.Node
    """The Concat that reads them."""
    sinks: ir.Value
    """[1, heads, 1, 1]"""
    heads: int


class SinkReader:
    """Reads what stands around the Softmax nodes of one model."""

    def __init__(self, constants: ConstantLookup) -> None:
        self._constants = constants

    def before(self, softmax: ir.Node) -> Sunk | None:
        """Scores and sinks that `softmax` reads; None where there are none."""
        value = self._whole(softmax.inputs[0], softmax)
        concat = None if value is None else value.producer()
        if concat is None or not is_standard(concat, "Concat") or len(concat.inputs) != 2:
            return None
        scores, added = concat.inputs
        if scores is None or concat.attributes["axis"].as_int() not in LAST:
            return None
        expand = None if added is None else added.producer()
        sinks = expand.inputs[0] if expand is not None and is_standard(expand, "Expand") else None
        heads = 0 if sinks is None else self._heads(sinks)
        return Sunk(scores, concat, sinks, heads) if sinks is not None and heads else None

    def _whole(self, value: ir.Value | None, softmax: ir.Node) -> ir.Value | None:
        """Return `value`, or `x` where it is `x - max(x)`; None where anything else reads that."""
        node = None if value is None else value.producer()
        if value is None or node is None or value.is_graph_output():
            return None
        readers = {softmax}
        if is_standard(node, "Sub"):
            value, largest = node.inputs
            most = None if largest is None else largest.producer()
            if most is None or not is_standard(most, "ReduceMax") or most.inputs[0] is not value:
                return None
            if not self._is_last(most) or len(list(most.outputs[0].uses())) != 1:
                return None
            readers = {node, most}
        if value is None or {use.node for use in value.uses()} != readers:
            return None
        return value

    def _is_last(self, most: ir.Node) -> bool:
        given = most.attributes.get("axes")
        axes = list(given.as_ints()) if given is not None else None
        if axes is None and len(most.inputs) > 1:
            axes = sizes(most.inputs[1], self._constants)  # type: ignore[assignment]
        kept = most.attributes.get("keepdims")
        return axes in ([-1], [3]) and (kept is None or kept.as_int() == 1)

    def _heads(self, sinks: ir.Value) -> int:
        """Count the heads of `sinks` [1, heads, 1, 1]; 0 if their shape is not known to be that."""
        tensor = self._constants.tensor(sinks)
        shape = sinks.shape if tensor is None else tensor.shape
        if shape is None or len(shape) != 4:
            return 0
        heads = shape[1]
        alone = all(shape[axis] == 1 for axis in HEADS_ALONE)
        return heads if alone and isinstance(heads, int) else 0

    def drops_last(self, node: ir.Node) -> bool:
        """Tell whether `node` leaves out the last weight, which is the sink's."""
        if not is_standard(node, "Slice") or len(node.inputs) < 4:
            return False
        starts, ends, axes = (sizes(v, self._constants) for v in node.inputs[1:4])
        steps = sizes(node.inputs[4], self._constants) if len(node.inputs) > 4 else [1]
        return starts == [0] and ends == [-1] and axes in ([-1], [3]) and steps == [1]
