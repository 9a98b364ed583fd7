"""How an input masks: told by what becomes of an element 0 and of an element 1.

    mask ─ Equal(0) ─ Where(-inf, scores)          mask ─ Cast ─ 1 - m ─ m * -1e9 ─ scores + m

Both numbers are followed through the nodes that change them, to where one of them makes the
difference between "seen" and "hidden".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from octavo.onnx.inputs.dataflow import Dataflow, attribute_int, input_at, moves_or_picks

Pair = tuple[float, float]

_FAR = 100.0  # apart: what is added to scores so that Softmax makes nothing of one of them
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
}
_ARITHMETIC: dict[str, Callable[[float, float], Any]] = {
    "Add": operator.add,
    "Sum": operator.add,
    "Sub": operator.sub,
    "Mul": lambda a, b: 0.0 if a == 0 or b == 0 else a * b,  # 0 * -inf is written for 0
    "Div": lambda a, b: a / b if b else math.inf,
    "Min": min,
    "Max": max,
    "And": lambda a, b: bool(a) and bool(b),
    "Or": lambda a, b: bool(a) or bool(b),
    "Xor": lambda a, b: bool(a) != bool(b),
}
_UNARY: dict[str, Callable[[float], float]] = {
    "Not": operator.not_,
    "Neg": operator.neg,
    "Abs": abs,
    "Sign": lambda a: (a > 0) - (a < 0),
    "Log": lambda a: math.log(a) if a > 0 else -math.inf,
}
_COUNTED = frozenset("ReduceSum ReduceMax CumSum NonZero Compress ReduceMean".split())
_ATTENTION_MASKS = {"Attention": (3, 5), "MultiHeadAttention": (4, 5), "QAttention": (5,)}


@dataclass(frozen=True)
class MaskUse:
    """What an input does as a mask: which element hides, and how far that is beyond doubt.

    `is_added`: it is itself the number that is added to scores.
    """

    hidden: int
    is_sure: bool
    is_added: bool = False


def mask_use(value: ir.Value, flow: Dataflow) -> MaskUse | None:
    """Return how `value` hides elements of another; None where it does not seem to."""
    probe = _Probe(flow)
    for node, index, _ in flow.reads(value, probe.goes_on):
        probe.look(node, index)
    sure = [use for use in probe.uses if use.is_sure]
    return next(iter(sure or probe.uses), None)


class _Probe:
    """The pair that each value holds for elements 0 and 1 of the input."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._pairs: dict[ir.Value, Pair] = {}
        self._added: set[ir.Value] = set()
        self.uses: list[MaskUse] = []

    def goes_on(self, node: ir.Node, index: int) -> bool:
        value = node.inputs[index]
        if value is None or not node.outputs:
            return False
        after = self._after(node, index, self._pair(value))
        if after is None or (after[0] == after[1]):
            return False
        is_sum = node.op_type in ("Add", "Sum") and self._other(node, index) is None
        for out in node.outputs:
            self._pairs[out] = after
            if value in self._added or is_sum:
                self._added.add(out)
        return True

    def look(self, node: ir.Node, index: int) -> None:
        value = node.inputs[index]
        assert value is not None
        pair, op = self._pair(value), node.op_type
        is_far = not abs(pair[0] - pair[1]) < _FAR  # NaN of two infinities too
        hides = int(pair[1] < pair[0])
        if op in ("Softmax", "LogSoftmax", "Add", "Sub") and is_far and index < 2:
            self.uses.append(MaskUse(hides, True))
        elif op == "Softmax" and value in self._added:
            self.uses.append(MaskUse(hides, True, is_added=pair == (0, 1)))
        elif op in _ATTENTION_MASKS and index in _ATTENTION_MASKS[op]:
            is_float = value.dtype is not None and value.dtype.is_floating_point()
            is_added = index == 5 or (not node.domain and is_float)
            self.uses.append(MaskUse(0, True, is_added=is_added))
        elif op == "Where" and index == 0:
            self._look_at_choice(node, pair)
        elif op == "Mul" and self._other(node, index) is None and 0 in pair and pair[0] != pair[1]:
            self.uses.append(MaskUse(pair.index(0), False))
        elif op in _COUNTED and (index == 0 or op == "Compress"):
            self.uses.append(MaskUse(hides, False))

    def _look_at_choice(self, node: ir.Node, pair: Pair) -> None:
        yes, no = (self._flow.number(input_at(node, i)) for i in (1, 2))
        if yes is None and no is None:  # nothing tells which of two activations is hidden
            self.uses.append(MaskUse(int(not pair[1]), False))
        elif yes is None or no is None:
            constant = yes if no is None else no
            hidden = next((i for i in (0, 1) if bool(pair[i]) == (no is None)), 0)
            self.uses.append(MaskUse(hidden, constant is not None and constant <= -_FAR))

    def _pair(self, value: ir.Value) -> Pair:
        return self._pairs.get(value, (0.0, 1.0))

    def _other(self, node: ir.Node, index: int) -> float | None:
        """Return the stored number beside input `index` of a node of two inputs, or None."""
        return self._flow.number(node.inputs[1 - index]) if len(node.inputs) == 2 else None

    def _after(self, node: ir.Node, index: int, pair: Pair) -> Pair | None:
        """Apply `node` to both numbers of `pair`; None where they are followed no further."""
        op = node.op_type
        if op == "Cast" and attribute_int(node, "to", 0) == ir.DataType.BOOL:
            return float(pair[0] != 0), float(pair[1] != 0)
        if moves_or_picks(node, index):
            return pair
        if op in _UNARY:
            return float(_UNARY[op](pair[0])), float(_UNARY[op](pair[1]))
        if op == "Where":
            return self._chosen(node, index, pair)
        made = _COMPARISONS.get(op) or _ARITHMETIC.get(op)
        if made is None:
            return None
        other = self._other(node, index)
        if other is None:
            return None if op in _COMPARISONS or op in ("Sub", "Div") else pair
        sides = [(n, other) if index == 0 else (other, n) for n in pair]
        return float(made(*sides[0])), float(made(*sides[1]))

    def _chosen(self, node: ir.Node, index: int, pair: Pair) -> Pair:
        if index:
            return pair
        yes, no = (self._flow.number(input_at(node, i)) or 0.0 for i in (1, 2))
        return (yes if pair[0] else no), (yes if pair[1] else no)
