"""Which activations have rows that are NaN everywhere or nowhere.

ONNX Runtime's maximum skips NaN, so a quantized row that holds one must be marked by a sum over the
row: a pass over the activation. Where a NaN or infinity anywhere in a row has already made all of
it NaN, the maximum is NaN by itself and the pass is saved. That holds for

- the output of a layer normalization, as one operator or written out, whose mean and variance see
  the whole row (not of an RMS normalization: `x / rms(x)` of one infinity is NaN there and 0
  elsewhere),
- the product of a layer quantized per row here, whose row scale is NaN,
- what an attention gives, where `self_attention` finds it so,
- what elementwise operators that make no NaN of their own make of such values and finite constants.

An overflow of float32 inside such an elementwise operator can make an infinity, and `inf - inf` a
single NaN; that is beyond 3.4e38 and not looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.attentions import FoundAttention
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.dims import Dims
from octavo.graph.analysis.kept_axes import float_layer

# The inputs that scale and shift each column, and must be finite constants.
NORMALIZATIONS = {
    "LayerNormalization": (1, 2),
    "SkipLayerNormalization": (2, 3),
    "EmbedLayerNormalization": (5, 6),
}
# Of a number that is not NaN, none of these makes NaN.
UNARY = frozenset(
    "Identity Relu Gelu FastGelu QuickGelu BiasGelu Erf Tanh Sigmoid Silu Neg Abs Cast Dropout "
    "LeakyRelu Elu Softplus HardSigmoid HardSwish".split()
)
BINARY = frozenset("Add Sum Sub Mul".split())
DOMAINS = frozenset(("", "ai.onnx", "com.microsoft"))
MAX_DEPTH = 24
MAX_CONSTANT = 1 << 16  # elements; a larger constant is not read only to look for NaN


class UniformRows:
    """Answers for the values of one model while it is being converted."""

    def __init__(self, constants: ConstantLookup) -> None:
        self._constants = constants
        self._known: dict[int, bool] = {}
        self._attentions: dict[ir.Node, Sequence[ir.Node]] = {}
        self._alive: list[ir.Value] = []  # keeps ids valid

    def mark(self, value: ir.Value) -> None:
        """States that `value` comes out of a layer quantized per row."""
        self._known[id(value)] = True
        self._alive.append(value)

    def attends(self, last: ir.Node, splits: Sequence[ir.Node]) -> None:
        """States that `last` ends an attention whose rows are as those of Q, K and V.

        `splits` are the nodes that take these, perhaps replaced by then, apart into heads.
        """
        self._attentions[last] = splits

    def __call__(self, value: ir.Value) -> bool:
        """Tell whether each row of `value` (along its last axis) is NaN everywhere or nowhere."""
        return self._uniform(value, MAX_DEPTH)

    def _uniform(self, value: ir.Value, depth: int) -> bool:
        known = self._known.get(id(value))
        if known is not None:
            return known
        answer = depth > 0 and self._from_producer(value, depth - 1)
        self._known[id(value)] = answer
        self._alive.append(value)
        return answer

    def _from_producer(self, value: ir.Value, depth: int) -> bool:
        node = value.producer()
        if node is None or node.domain not in DOMAINS or value.index() != 0:
            return False
        if node in self._attentions:
            sources = [split.inputs[0] for split in self._attentions[node]]
            return all(s is not None and self._uniform(s, depth) for s in sources)
        op, first = node.op_type, node.inputs[0] if node.inputs else None
        if op in NORMALIZATIONS:
            return self._normalizes_rows(node)
        if op in UNARY and first is not None:
            if op == "Dropout" and len(node.inputs) > 2:  # it may be training
                return False
            return self._uniform(first, depth) and self._finite(node.inputs[1:])
        if op in BINARY:
            operands = [i for i in node.inputs if i is not None]
            uniform = [self._uniform(i, depth) for i in operands]
            rest = [i for u, i in zip(uniform, operands, strict=True) if not u]
            if any(uniform) and self._finite(rest):
                return True
        if op == "Pow" and first is not None:
            return self._whole_power(node.inputs[1]) and self._uniform(first, depth)
        if op == "Div" and first is not None and self._divisor(node.inputs[1]):
            return self._uniform(first, depth)
        return op in ("Div", "Mul") and self._written_out(node)

    def _normalizes_rows(self, node: ir.Node) -> bool:
        axis, x = node.attributes.get("axis"), node.inputs[0]
        last = {-1}
        if x is not None and x.shape is not None:
            last.add(len(x.shape) - 1)
        if axis is not None and axis.as_int() not in last:
            return False
        columns = NORMALIZATIONS[node.op_type]
        return self._finite([v for i, v in enumerate(node.inputs) if i in columns])

    def _written_out(self, node: ir.Node) -> bool:
        """Tell whether the node ends `d / sqrt(mean(d * d) + epsilon)` with `d = x - mean(x)`."""
        for i in (0, 1) if node.op_type == "Mul" else (0,):
            d, factor = node.inputs[i], node.inputs[1 - i]
            if d is not None and factor is not None and _is_centred(d):
                square = self._squares_behind(factor)
                if square is not None and _is_square_of(square, d, self._scalar):
                    return True
        return False

    def _squares_behind(self, value: ir.Value) -> ir.Value | None:
        """Return `s` if `value` is `sqrt(mean(s) + epsilon)`, its reciprocal, or such a power."""
        shifted = False
        for _ in range(6):
            node = value.producer()
            if node is None or node.domain not in DOMAINS:
                return None
            if _reduces_last(node):
                return node.inputs[0] if shifted and node.op_type == "ReduceMean" else None
            follow = node.inputs[0]
            if node.op_type == "Add":
                a, b = (self._scalar(i) for i in node.inputs)
                epsilon = b if a is None else a
                if epsilon is None or not epsilon > 0:
                    return None
                follow, shifted = node.inputs[0 if a is None else 1], True
            elif node.op_type == "Div":  # 1 / sqrt(.)
                if self._scalar(node.inputs[0]) is None:
                    return None
                follow = node.inputs[1]
            elif node.op_type == "Pow":
                if self._scalar(node.inputs[1]) is None:
                    return None
            elif node.op_type not in ("Sqrt", "Reciprocal", "Identity", "Cast"):
                return None
            if follow is None:
                return None
            value = follow
        return None

    def _finite(self, values: Sequence[ir.Value | None]) -> bool:
        return all(v is None or self._finite_constant(v) is not None for v in values)

    def _divisor(self, value: ir.Value | None) -> bool:
        array = None if value is None else self._finite_constant(value)
        return array is not None and bool(np.all(array != 0))

    def _whole_power(self, value: ir.Value | None) -> bool:
        power = self._scalar(value)
        return power is not None and power >= 1 and power == int(power)

    def _scalar(self, value: ir.Value | None) -> float | None:
        """Return the number in a finite constant of one element, else None."""
        array = None if value is None else self._finite_constant(value)
        return float(array.ravel()[0]) if array is not None and array.size == 1 else None

    def _finite_constant(self, value: ir.Value) -> npt.NDArray[np.float64] | None:
        """Return the numbers of a small stored constant without NaN and infinity, else None."""
        tensor = self._constants.tensor(value)
        if tensor is None or tensor.size > MAX_CONSTANT:
            return None
        array = np.asarray(tensor.numpy(), np.float64)
        return array if bool(np.isfinite(array).all()) else None


def _is_centred(value: ir.Value) -> bool:
    """Tell whether `value` is `x - mean(x)` over the last axis."""
    node = value.producer()
    if node is None or node.op_type != "Sub" or node.inputs[1] is None:
        return False
    mean = node.inputs[1].producer()
    return (
        mean is not None
        and mean.op_type == "ReduceMean"
        and _reduces_last(mean)
        and mean.inputs[0] is node.inputs[0]
    )


def _is_square_of(
    square: ir.Value, d: ir.Value, scalar: Callable[[ir.Value | None], float | None]
) -> bool:
    """Tell whether `square` is `d * d` or `d ** 2`, or of an equal difference."""
    node = square.producer()
    if node is None or node.op_type not in ("Mul", "Pow"):
        return False
    base = node.inputs[0]
    if node.op_type == "Mul" and node.inputs[1] is not base:
        return False
    if node.op_type == "Pow" and scalar(node.inputs[1]) != 2.0:
        return False
    return base is d or (base is not None and _is_centred(base) and _centre(base) is _centre(d))


def _centre(value: ir.Value) -> ir.Value | None:
    node = value.producer()
    return None if node is None else node.inputs[0]


def _reduces_last(node: ir.Node) -> bool:
    if node.op_type not in ("ReduceMean", "ReduceSum"):
        return False
    keep = node.attributes.get("keepdims")
    if keep is not None and keep.as_int() == 0:
        return False
    axes = node.attributes.get("axes")
    if axes is not None:
        return list(axes.as_ints()) == [-1]
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        tensor = ir.convenience.get_const_tensor(node.inputs[1])
        return tensor is not None and tensor.numpy().ravel().tolist() == [-1]
    return False


HEADS = -3
"""Their axis in the scores [batch, heads, queries, keys]."""


def rows_stay_whole(attention: FoundAttention, constants: ConstantLookup, dims: Dims) -> bool:
    """Tell whether the rows of `attention` are so if those of its Q, K and V are."""
    parts = attention.q, attention.k, attention.v
    sources = {_multiplied(heads.source, constants) for heads in parts}
    if len(sources) != 1 or None in sources or not np.isfinite(attention.scale):
        return False
    return attention.bias is None or _is_one_for_all_heads(attention.bias, dims)


def _multiplied(value: ir.Value, constants: ConstantLookup) -> ir.Value | None:
    """x where `value` is x times a constant matrix, and perhaps a bias added."""
    found: ir.Value | None = value
    while found is not None:
        node = found.producer()
        layer = None if node is None else float_layer(node, constants)
        if node is None or layer is None:
            return None
        found = layer.source
        if node.op_type == "MatMul":
            return found
    return None


def _is_one_for_all_heads(mask: ir.Value, dims: Dims) -> bool:
    found = dims(mask)
    return found is not None and (len(found) < -HEADS or found[HEADS] == 1)
