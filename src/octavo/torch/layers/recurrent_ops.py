"""Recurrent layers over tensors: straight to the C++ core, and the operator `octavo::recurrent`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from octavo.core.recurrent import Recurrent
from octavo.core.recurrent_weights import Kind
from octavo.torch import ops
from octavo.torch.layers.recurrent_weights import RecurrentStack

Results = tuple[Tensor, Tensor, Any]
"""y, h and c; c is None but for an LSTM."""
Call = Callable[[Tensor, Any, Any, Any, bool], Results]
"""`call(x, h0, c0, lengths, batch_first)`; states and lengths may be None."""

WIDENED = (torch.float16, torch.bfloat16, torch.float64)
STATES = {True: ("hx[0]", "hx[1]"), False: ("hx", "hx")}
"""What callers know h0 and c0 as, by whether it is an LSTM."""


def plain(state: Tensor | None) -> bool:
    """Tell whether a kernel may read `state` by its address, beside an x of which that is so."""
    return state is None or (
        type(state) is Tensor
        and state.is_cpu
        and not (state.requires_grad and torch.is_grad_enabled())
        and not state.is_neg()
    )


def caller(net: Recurrent) -> Call:
    """Build the function that hands sequences in tensors to a kernel over addresses.

    x is [T, B, inputs], or [B, T, inputs] with `batch_first`, and y as it; the states are
    [layers * directions, B, ...]. Raises TypeError or ValueError, which name the argument.
    """
    run, threads = net.run, torch.get_num_threads
    inputs, hidden, output, ways = net.input_size, net.hidden_size, net.output_size, net.directions
    states, width, lstm = len(net.layers) * ways, ways * output, net.kind is Kind.LSTM
    names = STATES[lstm]

    def call(x: Tensor, h0: Any, c0: Any, lengths: Any, batch_first: bool) -> Results:
        if x.dtype is not torch.float32:
            return widened(call, names, x, h0, c0, lengths, batch_first)
        steps, batch = sequence_shape(x, inputs, batch_first)
        if lengths is not None:
            lengths = checked_lengths(lengths, steps, batch)
        if not x.is_contiguous() and inputs > 1 and x.stride(2) != 1:
            x = x.contiguous()
        first, second, _ = x.stride()
        x_step, x_item = (second, first) if batch_first else (first, second)
        wanted = (states, batch, output)
        if h0 is not None:
            h0 = checked_state(h0, names[0], wanted)
        h = x.new_empty(wanted)
        c = None
        if lstm:
            wanted = (states, batch, hidden)
            if c0 is not None:
                c0 = checked_state(c0, names[1], wanted)
            c = x.new_empty(wanted)
        if batch_first:
            y, y_step, y_item = x.new_empty((batch, steps, width)), width, steps * width
        else:
            y, y_step, y_item = x.new_empty((steps, batch, width)), batch * width, width
        run(
            x.data_ptr(),
            steps,
            batch,
            x_step,
            x_item,
            y.data_ptr(),
            y_step,
            y_item,
            output,
            0 if h0 is None else h0.data_ptr(),
            0 if c0 is None else c0.data_ptr(),
            h.data_ptr(),
            0 if c is None else c.data_ptr(),
            0 if lengths is None else lengths.data_ptr(),
            threads(),
        )
        return y, h, c

    return call


def sequence_shape(x: Tensor, inputs: int, batch_first: bool) -> tuple[int, int]:
    """Return (T, B) of a sequence; raise ValueError for other shapes and, as PyTorch, for T = 0."""
    shape = x.shape
    if len(shape) != 3 or shape[2] != inputs:
        axes = "B, T" if batch_first else "T, B"
        raise ValueError(f"input: needs shape [{axes}, {inputs}], not {list(shape)}")
    steps, batch = (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    if steps == 0:
        raise ValueError(f"input: has no steps, shape {list(shape)}; needs one or more")
    return steps, batch


def checked_state(state: Tensor, name: str, shape: Any) -> Tensor:
    """Return `state`, contiguous; raise TypeError or ValueError unless it is float32 of `shape`."""
    if state.dtype is not torch.float32:
        state = of_dtype(state, name, torch.float32)
    if state.shape != shape:
        raise ValueError(f"{name}: needs shape {list(shape)}, not {list(state.shape)}")
    return state if state.is_contiguous() else state.contiguous()


def checked_lengths(lengths: Tensor, steps: int, batch: int) -> Tensor:
    """Return `lengths` int64 [B], contiguous.

    Raises TypeError or ValueError where `lengths` is not that, or not 0..T each.
    """
    if lengths.dtype is not torch.int64 or not lengths.is_cpu:
        raise TypeError(
            f"lengths: needs int64 on the CPU, not {_name(lengths.dtype)} on {lengths.device}"
        )
    if lengths.shape != (batch,):
        raise ValueError(f"lengths: needs shape {[batch]}, not {list(lengths.shape)}")
    for number in (int(n) for n in lengths.aminmax()) if batch else ():
        if not 0 <= number <= steps:
            raise ValueError(f"lengths: holds {number}, which is not in 0..{steps}, the steps")
    return lengths.contiguous()


def widened(
    call: Callable[..., Any], names: tuple[str, str], x: Tensor, h: Any, c: Any, *others: Any
) -> tuple[Any, ...]:
    """Return `call`'s results in the dtype of `x`, computed of the same numbers in float32."""
    dtype = x.dtype
    if dtype not in WIDENED:
        raise TypeError(f"input: needs float32, float16, bfloat16 or float64, not {_name(dtype)}")
    h, c = (
        None if state is None else of_dtype(state, name, dtype).float()
        for name, state in zip(names, (h, c), strict=True)
    )
    found = call(x.float(), h, c, *others)
    return tuple(None if t is None else t.to(dtype) for t in found)


def of_dtype(state: Tensor, name: str, dtype: Any) -> Tensor:
    """Return `state` in `dtype`, the input's; raise TypeError where it has another.

    With autocast on, a float `state` is cast: PyTorch too lets the dtypes differ there.
    """
    if state.dtype is dtype:
        return state
    if torch.is_autocast_enabled("cpu") and state.is_floating_point():
        return state.to(dtype)
    raise TypeError(f"{name}: is {_name(state.dtype)}; needs {_name(dtype)}, as the input")


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


Arguments = tuple[int, int, int, int, bool, bool, str]


def arguments(stack: RecurrentStack) -> Arguments:
    """Return the operator's arguments behind the tensors, which describe the layers."""
    return (
        int(stack.kind),
        stack.inputs,
        stack.hidden,
        stack.output,
        stack.bidirectional,
        stack.bias,
        ",".join(stack.storage),
    )


_bound = ops.KernelCache()


def _run(
    x: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    weights: list[Tensor],
    *others: Any,
) -> Results:
    *about, batch_first = others

    def make() -> Call:
        stack = _stack(*about)
        stack.check(weights)
        return caller(stack.network(weights))

    made = _bound.get(weights[0], (*weights[1:], *about), make)
    y, h, c = made(x, h0, c0, lengths, batch_first)
    return y, h, x.new_empty(0) if c is None else c


def _stack(
    kind: int, inputs: int, hidden: int, output: int, bidirectional: bool, bias: bool, storage: str
) -> RecurrentStack:
    held = tuple(storage.split(","))
    return RecurrentStack(Kind(kind), inputs, hidden, output, bidirectional, bias, held)


def _fake(
    x: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    weights: list[Tensor],
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    *about, batch_first = others
    kind, inputs, hidden, output, bidirectional, _, storage = about
    _, batch = sequence_shape(x, inputs, batch_first)
    ways = 2 if bidirectional else 1
    states = (storage.count(",") + 1) * ways
    h = x.new_empty((states, batch, output))
    c = x.new_empty((states, batch, hidden) if kind == Kind.LSTM else 0)
    for name, state, like in zip(STATES[kind == Kind.LSTM], (h0, c0), (h, c), strict=True):
        if state is None:
            continue
        of_dtype(state, name, x.dtype)
        if state.dim() != 3:
            raise ValueError(f"{name}: needs shape {list(like.shape)}, not {list(state.shape)}")
        for found, wanted in zip(state.shape, like.shape, strict=True):
            torch._check(
                found == wanted, lambda n=name, s=like.shape: f"{n}: needs shape {list(s)}"
            )
    return x.new_empty((*x.shape[:2], ways * output)), h, c


recurrent = ops.define(
    "recurrent",
    "(Tensor x, Tensor? h0, Tensor? c0, Tensor? lengths, Tensor[] weights, int kind, int inputs, "
    "int hidden, int output, bool bidirectional, bool bias, str storage, bool batch_first) "
    "-> (Tensor, Tensor, Tensor)",
    _run,
    _fake,
)
"""All layers of a stack, whose buffers `weights` holds; c is empty but for an LSTM."""
