"""How queries, keys and values lie before the nodes that turn, scale and repeat them.

    [B, L, H*D] ─ Reshape ─ [B, L, H, D] ─ Transpose ─ [B, H, L, D] ─ Mul(scale) ─ MatMul
    [B, K, T, D] ─ Unsqueeze ─ Expand ─ Reshape ─ [B, K*n, T, D]                     grouped heads

Each step back that keeps an order which a `Layout` names is taken: the operator reads by strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from octavo.graph.analysis.attention_scores import passes
from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.element_types import is_float32
from octavo.graph.analysis.heads import HeadSplits, is_standard, perm_of
from octavo.graph.analysis.numbers import Numbers
from octavo.graph.analysis.ranks import Ranks
from octavo.graph.analysis.repeated_heads import repeated
from octavo.ir.activation_products import HEADS_FIRST, LAST_SWAPPED, Layout

MOST_STEPS = 16
FOUR = (0, 1, 2, 3)
AXES_OF_ROWS = (0, -1, 1, -1)
"""Batch and length of [B, L, heads * D] among its axes."""


@dataclass(frozen=True)
class Operand:
    """`value`, which lies as `layout` says, times `factor`."""

    value: ir.Value
    layout: Layout
    factor: float = 1.0
    heads: int = 0
    """Of its own; 0 where that is not known."""
    depth: int = 0
    axes: Mapping[ir.Value, tuple[int, ...]] = field(default_factory=dict)
    """Of values on the way: where batch, heads, length and depth are; -1 for nowhere."""
    passed: tuple[ir.Node, ...] = ()
    """Nodes that are not read any more."""
    groups: int = 1
    """How often each head was repeated."""
    parted: Operand | None = None
    """What lies as rows, behind the Reshape that parts its heads."""


class OperandReader:
    """Reads operands of one model backwards."""

    def __init__(
        self, constants: ConstantLookup, numbers: Numbers, ranks: Ranks, splits: HeadSplits
    ) -> None:
        self._constants, self._number = constants, numbers
        self._ranks, self._splits = ranks, splits

    def queries(self, value: ir.Value | None) -> Operand | None:
        """Read queries from `value` [..., L, D]."""
        return self._read(value, swapped=False, grouped=False)

    def keys(
        self, value: ir.Value | None, *, swapped: bool, grouped: bool = True
    ) -> Operand | None:
        """Read keys from `value` [..., T, D], or [..., D, T] where `value` is `swapped`."""
        return self._read(value, swapped=swapped, grouped=grouped)

    def values(self, value: ir.Value | None, *, grouped: bool = True) -> Operand | None:
        """Read values from `value` [..., T, E]."""
        return self._read(value, swapped=False, grouped=grouped)

    def _read(self, value: ir.Value | None, *, swapped: bool, grouped: bool) -> Operand | None:
        order: tuple[int, ...] | None = None  # axes as they are used, in those of `value`
        factor, groups, best = 1.0, 1, None
        axes: dict[ir.Value, tuple[int, ...]] = {}
        passed: list[ir.Node] = []
        for _ in range(MOST_STEPS):
            if value is None:
                break
            straight = _unswapped(order, swapped)
            if straight is not None:
                axes.setdefault(value, straight if len(straight) == 4 else FOUR)
            layout = _layout(order, swapped)
            if layout is not None:
                best = Operand(
                    value, layout, factor, axes=axes, passed=tuple(passed), groups=groups
                )
            node = value.producer()
            if node is None or self._constants.tensor(value) is not None:
                break
            before = self._before(node, order)
            if before is None and grouped and (order is None or len(order) == 4):
                found = repeated(node, (order or FOUR)[1], self._constants, self._ranks)
                if found is not None:
                    before = found[0], order or FOUR, 1.0
                    groups *= found[1]
            if before is None:
                break
            passed.append(node)
            value, order, times = before
            factor *= times
        return None if best is None else self._as_rows(best)

    def _before(
        self, node: ir.Node, order: tuple[int, ...] | None
    ) -> tuple[ir.Value | None, tuple[int, ...] | None, float] | None:
        """Return the value that `node` only moves or scales, its order of axes, and the factor."""
        if passes(node, self._constants) and is_float32(node.inputs[0], self._constants):
            return node.inputs[0], order, 1.0
        scaled = self.unscaled(node)
        if scaled is not None:
            return scaled[0], order, scaled[1]
        if is_standard(node, "Transpose"):
            perm = perm_of(node)
            if order is not None and len(perm) != len(order):
                return None
            return node.inputs[0], perm if order is None else tuple(perm[i] for i in order), 1.0
        back = self._splits.swapped(node)
        if back is not None:
            return back, tuple(LAST_SWAPPED[i] for i in (order or FOUR)), 1.0
        return None

    def unscaled(self, node: ir.Node) -> tuple[ir.Value | None, float] | None:
        """Return the value that `node` multiplies or divides by a number, and the factor."""
        if is_standard(node, "Mul"):
            for i in (1, 0):
                factor = self._number(node.inputs[i])
                if factor:
                    return node.inputs[1 - i], factor
        if is_standard(node, "Div"):
            divisor = self._number(node.inputs[1])
            if divisor:
                return node.inputs[0], 1.0 / divisor
        return None

    def _as_rows(self, found: Operand) -> Operand:
        """Undo the parting of heads in `found`, if the rows before are a layer's result."""
        node = found.value.producer()
        if node is None or not is_standard(node, "Reshape"):
            return found
        shape = sizes(node.inputs[1], self._constants)
        if found.layout is Layout.HEADS_INSIDE and shape is not None and len(shape) == 4:
            heads, depth = shape[2:]
            found = replace(
                found,
                heads=heads if isinstance(heads, int) and heads > 0 else 0,
                depth=depth if isinstance(depth, int) and depth > 0 else 0,
            )
        if found.layout is not Layout.HEADS_INSIDE or node.inputs[0] is None:
            return found
        source, factor = node.inputs[0], found.factor
        maker = source.producer()
        scaled = None if maker is None else self.unscaled(maker)
        passed = (*found.passed, node)
        if scaled is not None and scaled[0] is not None and maker is not None:
            source, factor, passed = scaled[0], factor * scaled[1], (*passed, maker)
        split = self._splits.split(node, source)
        if split is None:
            return found
        axes = {**found.axes, source: AXES_OF_ROWS}
        heads, depth, groups = split.heads, split.depth, found.groups
        return Operand(
            source, Layout.ROWS, factor, heads, depth, axes, passed, groups, parted=found
        )


def _unswapped(order: tuple[int, ...] | None, swapped: bool) -> tuple[int, ...] | None:
    """Return `order` as that of [..., L, D], with a swap undone; None where it is not known."""
    if not swapped:
        return FOUR if order is None else order
    if order is None or len(order) < 2:  # a vector has no axes to swap
        return None
    return (*order[:-2], order[-1], order[-2])


def _layout(order: tuple[int, ...] | None, swapped: bool) -> Layout | None:
    straight = _unswapped(order, swapped)
    if straight is None:
        return None
    if straight == tuple(range(len(straight))):
        return Layout.HEADS_OUTSIDE
    return Layout.HEADS_INSIDE if straight == HEADS_FIRST else None


def axis_of(size: SizeOf, operand: Operand) -> int:
    """Tell which of batch, heads, length and depth of `operand` a size is; -1 for none of them."""
    places = operand.axes.get(size.value, ())
    return places.index(size.axis) if size.axis in places else -1
