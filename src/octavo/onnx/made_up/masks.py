"""Masks, told by what becomes of an element 0 and of an element 1.

    mask ─ Equal(0) ─ Where(-inf, scores)          mask ─ Cast ─ 1 - m ─ m * -1e9 ─ scores + m

Both numbers are followed through the nodes that change them, to where one of them makes the
difference between "seen" and "hidden".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.flow import Flow, moves_or_picks
from octavo.onnx.made_up.stored import attribute_int, number, read_by

Pair = tuple[float, float]

_FAR = 100.0  # apart: what is added to scores so that Softmax makes nothing of one of them
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "Equal": lambda a, b: a == b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: 0.0 if a == 0 or b == 0 else a * b,  # 0 * -inf is written for 0
    "Div": lambda a, b: a / b if b else math.inf,
    "Min": min,
    "Max": max,
    "And": lambda a, b: float(bool(a) and bool(b)),
    "Or": lambda a, b: float(bool(a) or bool(b)),
    "Xor": lambda a, b: float(bool(a) != bool(b)),
}
_UNARY: dict[str, Callable[[float], float]] = {
    "Not": lambda a: float(not a),
    "Neg": lambda a: -a,
    "Abs": abs,
    "Sign": lambda a: float((a > 0) - (a < 0)),
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
    is_added: bool
    why: str


def mask_use(value: ir.Value, flow: Flow, constants: Constants) -> MaskUse | None:
    """How `value` hides elements of another; None where it does not seem to."""
    probe = _Probe(value, constants)
    for node, index, _ in flow.reads(value, probe.goes_on):
        probe.look(node, index)
    sure = [use for use in probe.uses if use.is_sure]
    return next(iter(sure or probe.uses), None)


class _Probe:
    """The pair that each value holds for elements 0 and 1 of the input."""

    def __init__(self, value: ir.Value, constants: Constants) -> None:
        self._constants = constants
        self._pairs: dict[ir.Value, Pair] = {}
        self._first = value
        self._added: set[ir.Value] = set()
        self.uses: list[MaskUse] = []

    def goes_on(self, node: ir.Node, index: int) -> bool:
        value = node.inputs[index]
        if value is None or not node.outputs:
            return False
        after = self._after(node, index, self._pair(value))
        if after is None or (after[0] == after[1]):
            return False
        for out in node.outputs:
            self._pairs[out] = after
            if value in self._added or (
                node.op_type in ("Add", "Sum") and self._other(node, index) is None
            ):
                self._added.add(out)
        return True

    def look(self, node: ir.Node, index: int) -> None:
        value = node.inputs[index]
        assert value is not None
        pair, op = self._pair(value), node.op_type
        far = _is_far(pair)
        hides = int(pair[1] < pair[0])
        if op in ("Softmax", "LogSoftmax", "Add", "Sum") and far and index < 2:
            self._use(hides, True, op)
        elif op == "Softmax" and value in self._added:
            self._use(hides, True, op, is_added=pair == (0, 1))
        elif op in _ATTENTION_MASKS and index in _ATTENTION_MASKS[op]:
            self._use(0, True, op, is_added=index == 5 or (not node.domain and _is_floating(value)))
        elif op == "Where" and index == 0:
            self._look_at_choice(node, pair)
        elif op == "Mul" and self._other(node, index) is None and 0 in pair and pair[0] != pair[1]:
            self._use(pair.index(0), False, op)
        elif op in _COUNTED and (index == 0 or op == "Compress"):
            self._use(hides, False, op)

    def _use(self, hidden: int, is_sure: bool, why: str, *, is_added: bool = False) -> None:
        self.uses.append(MaskUse(hidden, is_sure, is_added, why))

    def _look_at_choice(self, node: ir.Node, pair: Pair) -> None:
        yes, no = (number(read_by(node, i), self._constants) for i in (1, 2))
        if (yes is None) == (no is None):
            if yes is None:  # one of two activations: nothing tells which of them is hidden
                self._use(int(not pair[1]), False, "Where")
            return
        hides_where = yes is not None
        constant = yes if yes is not None else no
        assert constant is not None
        hidden = next((i for i in (0, 1) if bool(pair[i]) == hides_where), 0)
        self._use(hidden, constant <= -_FAR, "Where")

    def _pair(self, value: ir.Value) -> Pair:
        return self._pairs.get(value, (0.0, 1.0))

    def _other(self, node: ir.Node, index: int) -> float | None:
        """The number that stands beside input `index` of a node of two inputs."""
        if len(node.inputs) != 2:
            return None
        return number(node.inputs[1 - index], self._constants)

    def _after(self, node: ir.Node, index: int, pair: Pair) -> Pair | None:
        """What `node` makes of both; None where they are followed no further."""
        op = node.op_type
        if op == "Cast" and attribute_int(node, "to", 0) == ir.DataType.BOOL:
            return float(pair[0] != 0), float(pair[1] != 0)
        if moves_or_picks(node, index):
            return pair
        if op in _UNARY:
            return _UNARY[op](pair[0]), _UNARY[op](pair[1])
        if op == "Where":
            return self._chosen(node, index, pair)
        if op not in _COMPARISONS and op not in _ARITHMETIC and op != "Sum":
            return None
        other = self._other(node, index)
        if other is None:
            return None if op in _COMPARISONS or op in ("Sub", "Div") else pair
        if op == "Sum":
            op = "Add"
        made = _COMPARISONS.get(op) or _ARITHMETIC[op]
        sides = [(n, other) if index == 0 else (other, n) for n in pair]
        return float(made(*sides[0])), float(made(*sides[1]))

    def _chosen(self, node: ir.Node, index: int, pair: Pair) -> Pair:
        if index:
            return pair
        yes, no = (number(read_by(node, i), self._constants) for i in (1, 2))
        of = [(yes if n else no) for n in pair]
        return (0.0 if of[0] is None else of[0], 0.0 if of[1] is None else of[1])


def _is_far(pair: Pair) -> bool:
    apart = abs(pair[0] - pair[1])
    return not apart < _FAR  # NaN of two infinities too


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()
