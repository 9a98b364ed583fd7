"""Products of which batch and heads are one axis, as `torch.bmm` has them.

    [B, H, L, D] ─ Reshape[-1, L, D]             queries, keys and values
    [B*H, S, T]  ─ Reshape[B, H, S, T]           scores, before a mask is added, and back again
    [B*H, S, E]  ─ Reshape[B, H, S, E]           the result

Where all of it fits together the Reshapes change nothing, and heads are apart throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from octavo.graph.analysis.attention_operands import Operand, OperandReader, axis_of
from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.heads import is_standard, perm_of
from octavo.graph.analysis.kept_axes import same_size
from octavo.graph.analysis.ranks import Ranks

MOST_STEPS = 6
BATCH, HEADS, LENGTH, DEPTH = range(4)
SWAPPED = (0, 2, 1)


class JoinedHeads:
    """Answers for the values of one model."""

    def __init__(self, constants: ConstantLookup, ranks: Ranks, operands: OperandReader) -> None:
        self._constants, self._ranks, self._operands = constants, ranks, operands

    def operand(self, value: ir.Value | None, *, swapped: bool = False) -> Operand | None:
        """Read `value` [B*H, L, D], or [B*H, D, L] if it is `swapped`, with its heads apart."""
        factor = 1.0
        for _ in range(MOST_STEPS):
            node = None if value is None else value.producer()
            if node is None:
                return None
            scaled = self._operands.unscaled(node)
            if scaled is not None:
                value, factor = scaled[0], factor * scaled[1]
            elif is_standard(node, "Transpose") and perm_of(node) == SWAPPED:
                value, swapped = node.inputs[0], not swapped
            elif is_standard(node, "Reshape") and self._ranks(node.inputs[0]) == 4:
                found = self._operands.keys(node.inputs[0], swapped=swapped, grouped=False)
                if found is None or not self._joins(node, found, swapped):
                    return None
                return replace(found, factor=found.factor * factor)
            else:
                return None
        return None

    def _joins(self, reshape: ir.Node, of: Operand, swapped: bool) -> bool:
        """Tell whether `reshape` makes one axis of batch and heads."""
        shape = self._shape(reshape, 3)
        if shape is None or not of.heads:
            return False
        inner = (DEPTH, LENGTH) if swapped else (LENGTH, DEPTH)
        return all(
            self._is(element, axis, of) for element, axis in zip(shape[1:], inner, strict=True)
        )

    def scores_fit(
        self, reshapes: Sequence[ir.Node], values: Sequence[ir.Value], q: Operand, k: Operand
    ) -> bool:
        """Tell whether all Reshapes of scores or weights, of such `values`, part or join heads."""
        return all(self._score_fits(node, values, q, k) for node in reshapes)

    def _score_fits(
        self, reshape: ir.Node, values: Sequence[ir.Value], q: Operand, k: Operand
    ) -> bool:
        shape = sizes(reshape.inputs[1], self._constants, self._ranks)
        if shape is None or len(shape) not in (3, 4):
            return False
        if len(shape) == 4 and shape[1] != q.heads:
            return False
        last = [
            (
                isinstance(element, SizeOf)
                and element.value in values
                and element.axis - (self._ranks(element.value) or 0) == place
            )
            or self._is(element, LENGTH, of)
            for element, place, of in ((shape[-2], -2, q), (shape[-1], -1, k))
        ]
        return all(last)

    def parts(self, reshape: ir.Node, value: ir.Value, q: Operand, v: Operand) -> bool:
        """Tell whether `reshape` makes [B, H, S, E] of `value` [B*H, S, E]."""
        shape = self._shape(reshape, 4)
        if shape is None or shape[1] != q.heads:
            return False
        return all(
            element == SizeOf(value, i) or self._is(element, axis, of)
            for element, i, axis, of in ((shape[2], 1, LENGTH, q), (shape[3], 2, DEPTH, v))
        )

    def _shape(self, reshape: ir.Node, count: int) -> list[int | SizeOf] | None:
        shape = sizes(reshape.inputs[1], self._constants, self._ranks)
        return shape if shape is not None and len(shape) == count else None

    def _is(self, element: int | SizeOf, axis: int, of: Operand) -> bool:
        """Tell whether `element` is the size of that axis of an operand."""
        if isinstance(element, int):
            stated = [
                value.shape[places[axis]]
                for value, places in of.axes.items()
                if value.shape is not None and 0 <= places[axis] < len(value.shape)
            ]
            return element > 0 and (element in stated or (axis == DEPTH and element == of.depth))
        return axis_of(element, of) == axis or any(
            places[axis] >= 0 and same_size(element.value, element.axis, value, places[axis])
            for value, places in of.axes.items()
        )
