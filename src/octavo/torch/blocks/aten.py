"""The readers of ATen operators, and of Octavo's own: what `reading` has for each name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from octavo.torch.blocks.emission import DTYPES
from octavo.torch.blocks.nodes import Node, UnknownStep
from octavo.torch.blocks.reading import Reading, reads

_BOOL = torch.bool
_NUMBERS = (torch.float32, torch.int64)
_UNARY = {
    "neg": "neg",
    "exp": "exp",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "relu": "relu",
    "silu": "silu",
    "rsqrt": "rsqrt",
    "sqrt": "sqrt",
    "reciprocal": "reciprocal",
    "abs": "abs",
    "sin": "sin",
    "cos": "cos",
    "erf": "erf",
    "log": "log",
    "logical_not": "not",
    "bitwise_not": "not",
}
_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "maximum": "max",
    "minimum": "min",
    "gt": "gt",
    "ge": "ge",
    "lt": "lt",
    "le": "le",
    "eq": "eq",
    "ne": "ne",
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_or": "or",
    "bitwise_or": "or",
    "__and__": "and",
    "__or__": "or",
}


def axis_of(x: Node, axis: int) -> int:
    """The axis, counted from the first."""
    return axis + len(x.shape) if axis < 0 else axis


# --- nothing to compute ---


@reads("contiguous", "clone", "detach", "alias", "lift_fresh_copy", "lift_fresh", "view_as")
def _same(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    return x


@reads("dropout", "native_dropout", "alpha_dropout", "feature_dropout")
def _dropout(r: Reading, value: Any, x: Node, p: float, train: bool, *args: Any) -> Node:
    if train and p:
        raise UnknownStep("dropout acts")
    return x


@reads("to", "_to_copy", "type_as", "float")
def _to(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    if value.dtype == x.dtype:
        return x
    if x.dtype in DTYPES and value.dtype in DTYPES:
        return r.make("cast", (x,), x.shape, value.dtype)
    raise UnknownStep(f"a cast from {_short(x.dtype)} to {_short(value.dtype)}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- views ---


@reads("view", "reshape", "_unsafe_view", "flatten", "unflatten", "_reshape_alias")
def _reshape(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    if value.dtype != x.dtype:
        raise UnknownStep("a view of another dtype")
    return reshaped(r, x, r.sizes(value))


def reshaped(r: Reading, x: Node, shape: tuple[Any, ...]) -> Node:
    """A view of another shape; of one that is reshaped already, of what that was."""
    while x.op == "reshape":
        x = x.args[0]
    return x if shape == x.shape else r.make("reshape", (x,), shape, x.dtype)


@reads("transpose", "permute", "t", "numpy_T", "mT", "swapaxes")
def _permute(r: Reading, value: Any, x: Node, *axes: Any) -> Node:
    rank = len(x.shape)
    order = list(range(rank))
    if not axes:  # t
        order = order[::-1]
    elif isinstance(axes[0], tuple):
        order = [axis_of(x, a) for a in axes[0]]
    elif len(axes) == 2:
        a, b = (axis_of(x, a) for a in axes)
        order[a], order[b] = order[b], order[a]
    return permuted(r, x, order)


def permuted(r: Reading, x: Node, order: list[int]) -> Node:
    """A view with axes in another order; two of them are one."""
    if x.op == "permute":
        order = [x.args[1][a] for a in order]
        x = x.args[0]
    if order == sorted(order):
        return x
    return r.make("permute", (x, tuple(order)), tuple(x.shape[a] for a in order), x.dtype)


@reads("unsqueeze")
def _unsqueeze(r: Reading, value: Any, x: Node, axis: int) -> Node:
    axis = axis + len(x.shape) + 1 if axis < 0 else axis
    return r.make("unsqueeze", (x, axis), r.sizes(value), x.dtype)


@reads("squeeze")
def _squeeze(r: Reading, value: Any, x: Node, axes: Any = None) -> Node:
    if axes is None:
        axes = tuple(range(len(x.shape)))
    gone = {axis_of(x, a) for a in (axes if isinstance(axes, tuple) else (axes,))}
    for axis in sorted(gone, reverse=True):
        if x.shape[axis] == 1:
            shape = (*x.shape[:axis], *x.shape[axis + 1 :])
            x = r.make("squeeze", (x, axis), shape, x.dtype)
    return x


@reads("expand", "expand_as", "broadcast_to")
def _expand(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    shape = r.sizes(value)
    return x if shape == x.shape else r.make("expand", (x,), shape, x.dtype)


@reads("slice")
def _slice(
    r: Reading,
    value: Any,
    x: Node,
    axis: int = 0,
    start: Any = None,
    stop: Any = None,
    step: int = 1,
) -> Node:
    axis = axis_of(x, axis)
    whole, shape = x.shape[axis], r.sizes(value)
    start = 0 if start is None else start
    if isinstance(start, int) and start < 0:
        if not isinstance(whole, int):
            # The last ones: as many as there are of them in the result.
            start = whole - shape[axis] if step == 1 and stop_is_end(stop) else None
        else:
            start = max(0, whole + start)
    if start is None:
        raise UnknownStep("a slice that counts from an end that moves")
    if shape[axis] == whole and step == 1:
        return x
    length = shape[axis] if step == 1 else (shape[axis] - 1) * step + 1
    if x.op == "slice" and x.args[1] == axis and x.args[4] == 1:
        start, x = x.args[2] + start, x.args[0]
    return r.make("slice", (x, axis, start, start + length, step), shape, x.dtype)


def stop_is_end(stop: Any) -> bool:
    """Whether a slice goes to the end."""
    return stop is None or (isinstance(stop, int) and stop >= 2**62)


def part(r: Reading, x: Node, axis: int, start: Any, length: Any) -> Node:
    """`length` places of an axis, from `start`."""
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    if length == x.shape[axis]:
        return x
    return r.make("slice", (x, axis, start, start + length, 1), shape, x.dtype)


@reads("narrow")
def _narrow(r: Reading, value: Any, x: Node, axis: int, start: Any, length: Any) -> Node:
    return part(r, x, axis_of(x, axis), start, length)


@reads("select")
def _select(r: Reading, value: Any, x: Node, axis: int, index: Any) -> Node:
    axis = axis_of(x, axis)
    if isinstance(index, int) and index < 0:
        index = x.shape[axis] + index
    one = part(r, x, axis, index, 1)
    return r.make("squeeze", (one, axis), r.sizes(value), x.dtype)


@reads("split", "split_with_sizes", "chunk", "tensor_split")
def _split(r: Reading, value: Any, x: Node, sizes: Any, axis: int = 0, **kwargs: Any) -> list[Node]:
    axis = axis_of(x, kwargs.get("dim", axis))
    at, found = 0, []
    for piece in value:
        length = r.sizes(piece)[axis]
        found.append(part(r, x, axis, at, length))
        at = at + length
    return found


@reads("unbind")
def _unbind(r: Reading, value: Any, x: Node, axis: int = 0) -> list[Node]:
    return [_select(r, piece, x, axis, i) for i, piece in enumerate(value)]


@reads("cat", "concat", "concatenate")
def _cat(r: Reading, value: Any, parts: tuple[Node, ...], axis: int = 0) -> Node:
    kept = tuple(p for p in parts if p.shape != (0,))
    if len(kept) == 1:
        return kept[0]
    return r.make("cat", (kept, axis_of(kept[0], axis)), r.sizes(value), kept[0].dtype)


@reads("pad", "constant_pad_nd")
def _pad(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    if r.sizes(value) != x.shape:
        raise UnknownStep("pad is no step of a program")
    return x


@reads("roll")
def _roll(r: Reading, value: Any, x: Node, shifts: tuple[Any, ...], axes: Any = ()) -> Node:
    if len(axes) != len(shifts):
        raise UnknownStep("roll of all axes as one")
    for shift, given in zip(shifts, axes, strict=True):
        axis = axis_of(x, given)
        size = x.shape[axis]
        if not isinstance(shift, int) or not isinstance(size, int):
            raise UnknownStep("roll by a size")
        first = shift % size
        if first:
            ends = part(r, x, axis, size - first, first), part(r, x, axis, 0, size - first)
            x = r.make("cat", (ends, axis), x.shape, x.dtype)
    return x


@reads("stack")
def _stack(r: Reading, value: Any, parts: tuple[Node, ...], axis: int = 0) -> Node:
    rank = len(parts[0].shape) + 1
    axis = axis + rank if axis < 0 else axis
    shape = r.sizes(value)
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    wide = tuple(r.make("unsqueeze", (p, axis), one, p.dtype) for p in parts)
    return r.make("cat", (wide, axis), shape, parts[0].dtype)


def _repeated_axis(r: Reading, x: Node, axis: int, count: Any, inner: bool) -> Node:
    """An axis that is repeated as a whole, or (`inner`) each place of it."""
    if count == 1:
        return x
    at = axis + inner
    before, after = x.shape[:at], x.shape[at:]
    one = r.make("unsqueeze", (x, at), (*before, 1, *after), x.dtype)
    wide = r.make("expand", (one,), (*before, count, *after), x.dtype)
    return reshaped(r, wide, (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))


@reads("repeat")
def _repeat(r: Reading, value: Any, x: Node, counts: tuple[Any, ...]) -> Node:
    if len(counts) != len(x.shape):
        raise UnknownStep("repeat that adds axes")
    for axis, count in enumerate(counts):
        x = _repeated_axis(r, x, axis, count, inner=False)
    return x


@reads("repeat_interleave")
def _repeat_interleave(
    r: Reading, value: Any, x: Node, count: Any, axis: Any = None, **kw: Any
) -> Node:
    if axis is None or isinstance(count, Node):
        raise UnknownStep("repeat_interleave of all axes, or by a tensor")
    return _repeated_axis(r, x, axis_of(x, axis), count, inner=True)


# --- made of nothing ---


def _fill(of: Callable[..., Any]) -> Any:
    def read(r: Reading, value: Any, *args: Any, **kwargs: Any) -> Node:
        number = of(args)
        if (
            value.dtype not in DTYPES
            or value.dtype == _BOOL
            or not isinstance(number, (int, float))
        ):
            raise UnknownStep(f"a {_short(value.dtype)} that is filled")
        one = r.make("filled", (number,), (), value.dtype)
        shape = r.sizes(value)
        return r.make("expand", (one,), shape, value.dtype) if shape else one

    return read


reads("zeros", "zeros_like", "new_zeros")(_fill(lambda args: 0))
reads("ones", "ones_like", "new_ones")(_fill(lambda args: 1))
reads("full", "full_like")(_fill(lambda args: args[1]))
reads("new_full")(_fill(lambda args: args[2]))


@reads("arange")
def _arange(r: Reading, value: Any, *args: Any, **kwargs: Any) -> Node:
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    if value.dtype != torch.int64 or step != 1:
        raise UnknownStep("arange of other than whole numbers, one by one")
    shape = r.sizes(value)
    made = r.make("arange", (), shape, value.dtype)
    return made if start == 0 else r.make("binary", ("add", made, start), shape, value.dtype)


# --- element by element ---


def _unary(name: str) -> Any:
    def read(r: Reading, value: Any, x: Node) -> Node:
        if x.dtype == torch.int64 and name in ("neg", "abs"):
            below = r.make("binary", ("mul", x, -1), x.shape, x.dtype)
            return below if name == "neg" else r.make("binary", ("max", x, below), x.shape, x.dtype)
        return r.make("unary", (name, x), r.sizes(value), value.dtype)

    return read


for _name, _word in _UNARY.items():
    reads(_name)(_unary(_word))


@reads("gelu")
def _gelu(r: Reading, value: Any, x: Node, approximate: str = "none") -> Node:
    word = "gelu" if approximate == "none" else "gelu_tanh"
    return r.make("unary", (word, x), x.shape)


@reads("softplus")
def _softplus(r: Reading, value: Any, x: Node, beta: float = 1, threshold: float = 20) -> Node:
    if (beta, threshold) != (1, 20):
        raise UnknownStep(f"softplus with beta {beta}")
    return r.make("unary", ("softplus", x), x.shape)


def binary(r: Reading, name: str, a: Any, b: Any, value: Any) -> Node:
    """One of the steps `binary`, of nodes and numbers."""
    if isinstance(a, (int, float)) and isinstance(b, Node):
        if name in ("add", "mul", "max", "min", "and", "or", "eq", "ne"):
            a, b = b, a
        elif name == "sub":
            return binary(r, "add", r.make("unary", ("neg", b), b.shape), a, value)
        elif name == "div":
            inverse = r.make("unary", ("reciprocal", b), b.shape)
            return inverse if a == 1 else binary(r, "mul", inverse, a, value)
        else:
            raise UnknownStep(f"{name} of a number and a tensor")
    integers = isinstance(a, Node) and a.dtype == torch.int64
    if not isinstance(a, Node) or not (integers or isinstance(b, (Node, int, float))):
        raise UnknownStep(f"{name} with a number that sizes make")
    if isinstance(b, Node) and a.dtype != b.dtype:
        raise UnknownStep(f"{name} of {_short(a.dtype)} and {_short(b.dtype)}")
    if (not isinstance(b, Node) and a.dtype == _BOOL) or (integers and isinstance(b, float)):
        raise UnknownStep(f"{name} of {_short(a.dtype)} and a number")
    if not isinstance(b, Node) and not integers:
        b = float(b)
        if (name, b) in (("add", 0.0), ("sub", 0.0), ("mul", 1.0), ("div", 1.0)):
            return a
    return r.make("binary", (name, a, b), r.sizes(value), value.dtype)


def _binary(name: str) -> Any:
    def read(r: Reading, value: Any, a: Any, b: Any, alpha: Any = 1, **kwargs: Any) -> Node:
        if alpha != 1 or kwargs.get("rounding_mode") is not None:
            raise UnknownStep(f"{name} with alpha or rounding")
        return binary(r, name, a, b, value)

    return read


for _name, _word in _BINARY.items():
    reads(_name)(_binary(_word))


@reads("rsub")
def _rsub(r: Reading, value: Any, a: Any, b: Any, alpha: Any = 1) -> Node:
    if alpha != 1:
        raise UnknownStep("sub with alpha")
    return binary(r, "sub", b, a, value)


def _least_or_most(name: str) -> Any:
    def read(r: Reading, value: Any, a: Node, *args: Any, **kwargs: Any) -> Node:
        if len(args) != 1 or not isinstance(args[0], Node):
            raise UnknownStep(f"{name} of one tensor")
        return binary(r, name, a, args[0], value)

    return read


reads("min")(_least_or_most("min"))
reads("max")(_least_or_most("max"))


@reads("pow")
def _pow(r: Reading, value: Any, x: Any, exponent: Any) -> Node:
    if not isinstance(x, Node) or not isinstance(exponent, (int, float)):
        raise UnknownStep("a power of two tensors")
    return r.make("power", (x, float(exponent)), x.shape)


@reads("square")
def _square(r: Reading, value: Any, x: Node) -> Node:
    return r.make("power", (x, 2.0), x.shape)


@reads("clamp", "clamp_min", "clamp_max")
def _clamp(r: Reading, value: Any, x: Node, *ends: Any, **kwargs: Any) -> Node:
    low, high = (*ends, None, None)[:2]
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    made = x if low is None else binary(r, "max", x, low, value)
    return made if high is None else binary(r, "min", made, high, value)


@reads("where")
def _where(r: Reading, value: Any, condition: Node, a: Any, b: Any) -> Node:
    return r.make("where", (condition, a, b), r.sizes(value), value.dtype)


@reads("masked_fill")
def _masked_fill(r: Reading, value: Any, x: Node, mask: Node, filled: Any) -> Node:
    return r.make("where", (mask, filled, x), r.sizes(value), value.dtype)


# --- rows ---


@reads("softmax", "_softmax")
def _softmax(r: Reading, value: Any, x: Node, axis: int, *args: Any) -> Node:
    _last(x, axis, "softmax")
    return r.make("softmax", (x,), x.shape)


def _last(x: Node, axes: Any, what: str) -> None:
    axes = axes if isinstance(axes, tuple) else (axes,)
    if [axis_of(x, a) for a in axes] != [len(x.shape) - 1]:
        raise UnknownStep(f"{what} along another axis than the last")


def _reduce(name: str) -> Any:
    def read(r: Reading, value: Any, x: Node, axes: Any, keep: bool = False, **kw: Any) -> Node:
        _last(x, axes, name)
        return r.make(name, (x, keep), r.sizes(value))

    return read


reads("mean")(_reduce("mean"))
reads("sum")(_reduce("sum"))


@reads("layer_norm")
def _layer_norm(
    r: Reading,
    value: Any,
    x: Node,
    shape: tuple[int, ...],
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
    *args: Any,
) -> Node:
    if len(shape) != 1:
        raise UnknownStep("a norm over more than one axis")
    return r.make("norm", (x, weight, bias), x.shape, kind="layer", eps=float(eps))


@reads("rms_norm", "_fused_rms_norm")
def _rms_norm(
    r: Reading, value: Any, x: Node, shape: tuple[int, ...], weight: Any = None, eps: Any = None
) -> Node:
    if len(shape) != 1:
        raise UnknownStep("a norm over more than one axis")
    eps = torch.finfo(torch.float32).eps if eps is None else float(eps)
    return r.make("norm", (x, weight, None), x.shape, kind="rms", eps=eps)


# --- products ---


@reads("matmul", "bmm")
def _matmul(r: Reading, value: Any, a: Node, b: Node) -> Node:
    if a.op == "constant" or b.op == "constant" or len(a.shape) != len(b.shape):
        raise UnknownStep("a float product with a weight")
    return r.make("matmul", (a, b), r.sizes(value))


@reads("baddbmm")
def _baddbmm(
    r: Reading, value: Any, c: Node, a: Node, b: Node, *, beta: float = 1, alpha: float = 1
) -> Node:
    made = binary(r, "mul", r.make("matmul", (a, b), r.sizes(value)), alpha, value)
    if beta == 0:
        return made
    return binary(r, "add", made, binary(r, "mul", c, beta, value), value)


@reads("scaled_dot_product_attention")
def _sdpa(
    r: Reading,
    value: Any,
    q: Node,
    k: Node,
    v: Node,
    given: Node | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Node:
    if dropout or any(len(n.shape) != 4 for n in (q, k, v)):
        raise UnknownStep("attention with dropout, or of other than four axes")
    if not isinstance(causal, (bool, int)):
        raise UnknownStep("attention that is causal by its sizes")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    mask = given if given is not None and given.dtype == _BOOL else None
    bias = None if mask is not None else given
    return attention(r, q, k, v, scale, bias, mask, bool(causal), r.sizes(value))


def attention(
    r: Reading,
    q: Node,
    k: Node,
    v: Node,
    scale: Any,
    bias: Node | None,
    mask: Node | None,
    causal: bool,
    shape: tuple[Any, ...],
) -> Node:
    """The step, of [B, H, S, D], [B, Hkv, T, D] and [B, Hkv, T, E]."""
    if not isinstance(scale, (int, float)):
        raise UnknownStep("attention whose scale depends on sizes")
    return r.make("attention", (q, k, v, bias, mask), shape, scale=float(scale), causal=causal)


@reads("linear")
def _float_linear(r: Reading, value: Any, x: Node, *args: Any) -> Node:
    raise UnknownStep("a linear layer that stayed float")


@reads("embedding")
def _embedding(r: Reading, value: Any, table: Node, indices: Node, *args: Any) -> Node:
    if table.dtype != torch.float32:
        raise UnknownStep("a table that is not float32")
    return r.make("embedding", (table, indices), r.sizes(value))


@reads("gather")
def _gather(r: Reading, value: Any, x: Node, axis: int, index: Node, **kwargs: Any) -> Node:
    if index.dtype != torch.int64 or not x.shape:
        raise UnknownStep("gather of a scalar, or by other than int64")
    return r.make("gather", (x, axis_of(x, axis), index), r.sizes(value), value.dtype)


@reads("octavo::linear")
def _quantized_linear(
    r: Reading,
    value: Any,
    x: Node,
    packed: Node,
    scale: Node,
    zero_point: Node | None,
    bias: Node | None,
    n: int,
    k: int,
    group: int,
    activation: str,
) -> Node:
    """A quantized linear layer: by the name of its module."""
    name = packed.args[0] if packed.op == "constant" else None
    if not isinstance(name, str) or x.dtype != torch.float32:
        raise UnknownStep("a quantized layer whose weight is computed")
    layer = name.rpartition(".")[0]
    shape = r.sizes(value)
    return r.make("linear", (x, None), shape, layer=layer, activation=activation, group=group)


@reads("octavo::cached")
def _cached(r: Reading, value: Any, k: Node, v: Node, total: Node) -> list[Node]:
    slot = {"total": total.args[0]}
    return [
        r.make("cached", (k, v, which), r.sizes(made), **slot) for which, made in enumerate(value)
    ]
