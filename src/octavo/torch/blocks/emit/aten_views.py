"""The readers of ATen operators that make views, put tensors side by side, or fill them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from octavo.torch.blocks.emit.aten_elements import short_name
from octavo.torch.blocks.emit.emission import DTYPES
from octavo.torch.blocks.nodes import Node, UnknownStep
from octavo.torch.blocks.trace.reading import Reading, reads


def axis_of(x: Node, axis: int) -> int:
    """Return an axis of `x`, which may be negative, counted from the first."""
    return axis + len(x.shape) if axis < 0 else axis


# --- views ---


@reads("view", "reshape", "_unsafe_view", "flatten", "unflatten", "_reshape_alias")
def _reshape(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    if value.dtype != x.dtype:
        raise UnknownStep("a view of another dtype")
    return reshaped(r, x, r.sizes(value))


def reshaped(r: Reading, x: Node, shape: tuple[Any, ...]) -> Node:
    """Read a reshape; a reshape of a reshape becomes one of the original."""
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
    """Read a permutation of axes; a permutation of a permutation becomes one of the original."""
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
    """Tell whether a slice with this stop goes to the end."""
    return stop is None or (isinstance(stop, int) and stop >= 2**62)


def part(r: Reading, x: Node, axis: int, start: Any, length: Any) -> Node:
    """Make the slice of an axis of `x` that has `length` elements from `start` on."""
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
    """Repeat an axis of `x` `count` times as a whole or, with `inner`, element by element."""
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
            or value.dtype == torch.bool
            or not isinstance(number, (int, float))
        ):
            raise UnknownStep(f"a {short_name(value.dtype)} that is filled")
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
