"""Between which numbers the values of a graph lie, whatever its inputs are.

    Relu            0 .. inf                   Sigmoid, Softmax   0 .. 1
    Clip            its ends                   Tanh, Erf          -1 .. 1
    Gelu, HardSwish -0.17, -0.38 .. inf        Elu                -alpha .. inf
    Add, Mul, ...   by interval arithmetic
    MaxPool, Reshape, Transpose, Slice, Split, Resize, ...    as what they read
    Concat, Where, Pad                                        what any of their operands may be

`share` is for what has no end below: numbers below zero are that much smaller than those above
would be, as after LeakyRelu or GELU. It is a tendency, the ends are certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.gates import is_gated

DOMAINS = frozenset(("", "ai.onnx", "com.microsoft"))
MAX_DEPTH = 64
MAX_CONSTANT = 1 << 16  # elements; a larger constant is not read only for its ends
UNSIGNED = frozenset((ir.DataType.BOOL, ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32))


@dataclass(frozen=True)
class Bounds:
    """`low` <= x <= `high`; what is below zero is `share` of what is above, as a tendency."""

    low: float = -math.inf
    high: float = math.inf
    share: float = 1.0


ANY = Bounds()
POSITIVE = Bounds(low=0.0)
UNIT, SIGNED_UNIT = Bounds(0.0, 1.0), Bounds(-1.0, 1.0)
GATED = Bounds(share=1 / 7)  # written out, and perhaps not scaled yet

FIXED: dict[str, Bounds] = {
    **dict.fromkeys("Softplus Exp Abs Sqrt LpPool GlobalLpPool".split(), POSITIVE),
    **dict.fromkeys("ReduceL1 ReduceL2 ReduceSumSquare".split(), POSITIVE),
    **dict.fromkeys("Shape Size ArgMax ArgMin NonZero".split(), POSITIVE),
    **dict.fromkeys("Sigmoid HardSigmoid Softmax Hardmax Not".split(), UNIT),
    **dict.fromkeys("Tanh Erf Sin Cos Softsign Sign".split(), SIGNED_UNIT),
    **dict.fromkeys("Greater GreaterOrEqual Less LessOrEqual Equal And Or Xor".split(), UNIT),
    **dict.fromkeys("Gelu FastGelu BiasGelu".split(), replace(GATED, low=-0.171)),
    **dict.fromkeys("Silu Mish HardSwish".split(), replace(GATED, low=-0.376)),
    **dict.fromkeys("QuickGelu Swish".split(), GATED),
}
SAME = frozenset(
    "Identity MaxPool GlobalMaxPool GlobalAveragePool Reshape Transpose "
    "Squeeze Unsqueeze Flatten Slice Split Gather GatherElements GatherND Tile Expand DepthToSpace "
    "SpaceToDepth ReverseSequence Compress TopK ReduceMax ReduceMin ReduceMean".split()
)
"""Operators that give numbers of their first input, or means of them."""

INDICES = frozenset("Shape Size ArgMax ArgMin NonZero Range".split())
SUMS = frozenset(("ReduceSum", "CumSum"))
OVERFLOWING = SUMS | set(
    "Add Sum Sub Mul Div Neg Pow Abs ReduceL1 ReduceL2 ReduceSumSquare ReduceMean".split()
)
"""Of integers these go beyond the ends of their type, and begin again at the other one."""


class ValueBounds:
    """Answers for the values of one model while it is being converted."""

    def __init__(self, constants: ConstantLookup) -> None:
        self._constants = constants
        self._known: dict[ir.Value, Bounds] = {}

    def __call__(self, value: ir.Value | None) -> Bounds:
        """Return the bounds of `value`; ANY where nothing is known."""
        return ANY if value is None else self._of(value, MAX_DEPTH)

    def _of(self, value: ir.Value, depth: int) -> Bounds:
        known = self._known.get(value)
        if known is None:
            known = self._computed(value, depth)
            self._known[value] = known
        return known

    def _computed(self, value: ir.Value, depth: int) -> Bounds:
        if self._constants.is_constant(value):
            return self._of_constant(value)
        found, node = ANY, value.producer()
        if node is not None and node.domain in DOMAINS and depth > 0:
            found = self._of_node(node, value, depth - 1)
        return replace(found, low=max(0.0, found.low)) if value.dtype in UNSIGNED else found

    def _of_constant(self, value: ir.Value) -> Bounds:
        tensor = self._constants.tensor(value)
        if tensor is None or tensor.size == 0 or tensor.size > MAX_CONSTANT:
            return ANY
        array = tensor.numpy()
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            return ANY
        return Bounds(float(array.min()), float(array.max()))

    def _holds_integers(self, value: ir.Value | None, depth: int) -> bool:
        """Tell whether integers are computed there, where the graph states no type by what they are
        computed from."""
        if value is None or depth == 0:
            return False
        if value.dtype is not None:
            return value.dtype.is_integer()
        node = value.producer()
        if node is None:
            return False
        if node.op_type == "Cast":
            return ir.DataType(node.attributes["to"].as_int()).is_integer()
        return node.op_type in INDICES or self._holds_integers(
            next((v for v in node.inputs if v is not None), None), depth - 1
        )

    def _of_node(self, node: ir.Node, value: ir.Value, depth: int) -> Bounds:
        op, rule = node.op_type, RULES.get(node.op_type)
        if op in OVERFLOWING and self._holds_integers(value, depth):
            return ANY
        if op in FIXED:
            return FIXED[op]
        if op in ("Mul", "Div") and is_gated(node, self._constants):
            return GATED
        if op == "Mul" and node.inputs[0] is node.inputs[1]:
            return POSITIVE
        if rule is None and op not in SAME and op not in SUMS:
            return ANY
        x = [ANY if v is None else self._of(v, depth) for v in node.inputs]
        if rule is not None:
            return rule(node, x)
        if op in SUMS:
            return POSITIVE if x[0].low >= 0.0 else ANY
        # Other outputs than the first are indices and masks, but for those of a Split.
        return x[0] if value.index() == 0 or op == "Split" else ANY


def _attribute(node: ir.Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.as_float())


def _text(node: ir.Node, name: str, default: str) -> str:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def _union(found: Iterable[Bounds]) -> Bounds:
    given = list(found)
    # What never goes below zero does not widen what goes below of the others.
    shares = [b.share for b in given if b.low < 0.0]
    return Bounds(min(b.low for b in given), max(b.high for b in given), max(shares, default=1.0))


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0.0 or b == 0.0 else a * b  # 0 times what is unbounded, not NaN


def _mul(node: ir.Node, x: list[Bounds]) -> Bounds:
    a, b = x
    ends = [_product(p, q) for p in (a.low, a.high) for q in (b.low, b.high)]
    share = a.share if b.low >= 0.0 else b.share if a.low >= 0.0 else 1.0
    return Bounds(min(ends), max(ends), share)


def _div(node: ir.Node, x: list[Bounds]) -> Bounds:
    a, b = x
    if b.low < 0.0 or b.high <= 0.0:
        return ANY
    if b.low == 0.0:  # of what is not negative, whatever it is divided by
        return POSITIVE if a.low >= 0.0 else Bounds(share=a.share)
    return _mul(node, [a, Bounds(1.0 / b.high, 1.0 / b.low)])


def _sum(node: ir.Node, x: list[Bounds]) -> Bounds:
    return Bounds(sum(b.low for b in x), sum(b.high for b in x))


def _sub(node: ir.Node, x: list[Bounds]) -> Bounds:
    return Bounds(x[0].low - x[1].high, x[0].high - x[1].low)


def _neg(node: ir.Node, x: list[Bounds]) -> Bounds:
    return Bounds(-x[0].high, -x[0].low)


def _relu(node: ir.Node, x: list[Bounds]) -> Bounds:
    return Bounds(max(0.0, x[0].low), max(0.0, x[0].high))


def _clip(node: ir.Node, x: list[Bounds]) -> Bounds:
    """Bound Clip, with ends as inputs (since opset 11) or attributes; crossed, the upper counts."""
    least, most = _attribute(node, "min", -math.inf), _attribute(node, "max", math.inf)
    ends = Bounds(least, least), Bounds(most, most)
    given = [v is not None for v in node.inputs]
    low = x[1] if len(x) > 1 and given[1] else ends[0]
    high = x[2] if len(x) > 2 and given[2] else ends[1]
    return replace(
        x[0],
        low=min(max(x[0].low, low.low), high.low),
        high=min(max(x[0].high, low.high), high.high),
    )


def _leaky(node: ir.Node, x: list[Bounds]) -> Bounds:
    return _steeper(x[0], _attribute(node, "alpha", 0.01))


def _prelu(node: ir.Node, x: list[Bounds]) -> Bounds:
    """Bound PRelu; nothing is known where slopes may be below zero."""
    slope = x[1]
    if slope.low == -math.inf or slope.high == math.inf:
        return ANY
    return _steeper(x[0], max(0.0, slope.high)) if slope.low >= 0.0 else ANY


def _steeper(x: Bounds, slope: float) -> Bounds:
    if slope < 0.0:
        return ANY
    low = x.low if x.low >= 0.0 else _product(slope, x.low)
    return Bounds(low, max(x.high, 0.0), min(1.0, slope * x.share))


def _elu(node: ir.Node, x: list[Bounds]) -> Bounds:
    return _ending(x[0], _attribute(node, "alpha", 1.0))


def _selu(node: ir.Node, x: list[Bounds]) -> Bounds:
    alpha, gamma = _attribute(node, "alpha", 1.67326), _attribute(node, "gamma", 1.0507)
    if alpha < 0.0 or gamma < 0.0:
        return ANY
    return _ending(x[0], alpha * gamma)


def _ending(x: Bounds, alpha: float) -> Bounds:
    return POSITIVE if x.low >= 0.0 else Bounds(low=-alpha) if alpha >= 0.0 else ANY


def _thresholded(node: ir.Node, x: list[Bounds]) -> Bounds:
    return POSITIVE if _attribute(node, "alpha", 1.0) >= 0.0 else ANY


def _pow(node: ir.Node, x: list[Bounds]) -> Bounds:
    power = x[1]
    even = power.low == power.high and power.low % 2 == 0
    return POSITIVE if even or x[0].low >= 0.0 else ANY


def _max(node: ir.Node, x: list[Bounds]) -> Bounds:
    return Bounds(max(b.low for b in x), max(b.high for b in x), min(b.share for b in x))


def _min(node: ir.Node, x: list[Bounds]) -> Bounds:
    return Bounds(min(b.low for b in x), min(b.high for b in x))


def _concat(node: ir.Node, x: list[Bounds]) -> Bounds:
    return _union(x)


def _where(node: ir.Node, x: list[Bounds]) -> Bounds:
    return _union(x[1:])


def _pad(node: ir.Node, x: list[Bounds]) -> Bounds:
    if _text(node, "mode", "constant") != "constant":
        return x[0]
    given = len(x) > 2 and node.inputs[2] is not None
    filled = _attribute(node, "value", 0.0)
    return _union([x[0], x[2] if given else Bounds(filled, filled)])


def _resize(node: ir.Node, x: list[Bounds]) -> Bounds:
    """Means of its input, but for cubic ones, which go beyond it."""
    if _text(node, "mode", "nearest") == "cubic":
        return ANY
    if _text(node, "coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return x[0]
    outside = _attribute(node, "extrapolation_value", 0.0)
    return _union([x[0], Bounds(outside, outside)])


def _cast(node: ir.Node, x: list[Bounds]) -> Bounds:
    """Integers take what is behind the point off, and truth is 1. What an integer type does not
    hold comes out as any of its numbers."""
    to = ir.DataType(node.attributes["to"].as_int())
    if to in UNSIGNED:
        return POSITIVE
    low = math.floor(x[0].low) if x[0].low > -math.inf else x[0].low
    found = Bounds(low, max(1.0, x[0].high), x[0].share)
    if not to.is_integer():
        return found
    least, most = float(to.min), float(to.max)
    return found if least <= found.low and found.high <= most else Bounds(least, most)


def _dropout(node: ir.Node, x: list[Bounds]) -> Bounds:
    """Bound Dropout: in training some numbers become zero and the others larger."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return x[0]
    low, high = (
        0.0 if end == 0.0 else math.copysign(math.inf, end) for end in (x[0].low, x[0].high)
    )
    return Bounds(min(0.0, low), max(0.0, high), x[0].share)


def _with_zero(node: ir.Node, x: list[Bounds]) -> Bounds:
    """Means over a border of zeros too."""
    return Bounds(min(0.0, x[0].low), max(0.0, x[0].high), x[0].share)


RULES: dict[str, Callable[[ir.Node, list[Bounds]], Bounds]] = {
    "Add": _sum,
    "Sum": _sum,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Neg": _neg,
    "Relu": _relu,
    "Clip": _clip,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Elu": _elu,
    "Celu": _elu,
    "Selu": _selu,
    "ThresholdedRelu": _thresholded,
    "Pow": _pow,
    "Max": _max,
    "Min": _min,
    "Concat": _concat,
    "Where": _where,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
    "Cast": _cast,
    "Dropout": _dropout,
    "AveragePool": _with_zero,
}
