"""nn.LSTMCell, nn.GRUCell and nn.RNNCell with int8 weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from octavo.core.recurrent import Recurrent
from octavo.core.recurrent_weights import Kind
from octavo.recipe import Kind as LayerKind
from octavo.torch import ops
from octavo.torch.layers.inputs import (
    as_leaf,
    autocasted_step,
    is_autocasting,
    is_proxy,
    refuse_nested,
)
from octavo.torch.layers.recurrent_buffers import RecurrentBuffers, float_names, pair
from octavo.torch.layers.recurrent_ops import (
    STATES,
    arguments,
    checked_state,
    plain,
    recurrent,
    widened,
)
from octavo.torch.layers.recurrent_weights import DirectionForm, RecurrentStack, storage_of
from octavo.torch.layers.registry import Shapes, quantized
from octavo.torch.quantizer import Quantizer

_CONFIG = ("input_size", "hidden_size", "bias", "storage")
Call = Callable[[Tensor, Any, Any], tuple[Tensor, Any]]


class QuantizedCell(RecurrentBuffers):
    """One step of one layer. `storage` is "int8", "float32", "float16" or "bfloat16".

    Buffers: `packed_ih` uint8 and `scale_ih` float32 [gates * hidden_size], the same with `hh`,
    `bias_ih` and `bias_hh` float32 [gates * hidden_size]; gates in PyTorch's order. What is not
    int8 is `blocks_ih` and `blocks_hh`.
    """

    AUTOCAST: ClassVar[bool] = False
    """Whether torch.autocast casts what the float cell gets: it does for RNN's alone."""

    CONFIG: ClassVar[tuple[str, ...]] = _CONFIG
    _KIND: ClassVar[Kind]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        storage: str = "int8",
        **options: Any,
    ) -> None:
        """Make a cell without weights; `options` are those that only one of the cells has."""
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.bias, self.storage = bias, storage
        self._set_options(options)
        kind = self._kind()
        sizes = input_size, hidden_size, hidden_size
        self._stack = RecurrentStack(kind, *sizes, False, bias, (storage,))
        self._arguments = arguments(self._stack)
        self._hold_directions([DirectionForm(kind, *sizes, bias, storage)])

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        options = {key: getattr(module, key) for key in cls.CONFIG if key != "storage"}
        with torch.device("meta"):
            made = cls(**options, storage=storage_of(choice))
        (one,) = made._directions
        weights = {part: getattr(module, part) for part in float_names(one)}
        made._fill(**one.quantized(weights, choice, quantizer, name))
        return made

    def _kernel(self) -> Call:
        return caller(self._stack.network(self._tensors()))

    def _run(self, x: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Any]:
        """Return (h', c') after a step; c' is None but for an LSTM."""
        if is_autocasting():
            x, h, c = autocasted_step(x, h, c, self.AUTOCAST)
        if ops.direct(x) and (h is None or plain(h)) and (c is None or plain(c)):
            return self._ready()(x, h, c)  # type: ignore[no-any-return]
        refuse_nested(x, "a batch of items")
        lstm = self._stack.kind is Kind.LSTM
        check_step(x, h, c, STATES[lstm])
        lead = (None,) * (3 - x.dim())  # a sequence of one step
        h, c = (None if state is None else state[lead] for state in (h, c))
        _, h, c = recurrent(x[lead], h, c, None, self._tensors(), *self._arguments, False)
        first = (0,) * len(lead)
        return h[first], c[first] if lstm else None


def check_step(x: Tensor, h: Tensor | None, c: Tensor | None, names: tuple[str, str]) -> None:
    """Raise ValueError where `x` has not 1 or 2 axes, or a state has not as many as `x`."""
    if x.dim() not in (1, 2):
        raise ValueError(
            f"input: needs 2 axes, or 1 for an item without a batch; has {list(x.shape)}"
        )
    for name, state in zip(names, (h, c), strict=True):
        if state is not None and state.dim() != x.dim():
            raise ValueError(f"{name}: needs {x.dim()} axes, as the input; has {list(state.shape)}")


def caller(net: Recurrent) -> Call:
    """Build the function that hands a step in tensors to a kernel over addresses.

    The function returns (h', c'); c' is None but for an LSTM.
    """
    run, threads = net.run, torch.get_num_threads
    inputs, hidden, lstm = net.input_size, net.hidden_size, net.kind is Kind.LSTM
    names = STATES[lstm]

    def call(x: Tensor, h: Any, c: Any) -> tuple[Tensor, Any]:
        shape = x.shape
        if x.dtype is not torch.float32 or len(shape) != 2 or shape[1] != inputs:
            return unusual(x, h, c)
        wanted, item = (shape[0], hidden), inputs
        if not x.is_contiguous():
            x = x if inputs == 1 or x.stride(1) == 1 else x.contiguous()
            item = x.stride(0)
        if h is not None:
            h = checked_state(h, names[0], wanted)
        if c is not None:
            c = checked_state(c, names[1], wanted)
        after = x.new_empty(wanted)
        memory = x.new_empty(wanted) if lstm else None
        run(
            x.data_ptr(),
            1,
            shape[0],
            0,
            item,
            0,
            0,
            0,
            0,
            0 if h is None else h.data_ptr(),
            0 if c is None else c.data_ptr(),
            after.data_ptr(),
            0 if memory is None else memory.data_ptr(),
            0,
            threads(),
        )
        return after, memory

    def unusual(x: Tensor, h: Any, c: Any) -> tuple[Tensor, Any]:
        if x.dtype is not torch.float32:
            return widened(call, names, x, h, c)
        check_step(x, h, c, names)
        if x.dim() == 2 or x.shape[0] != inputs:
            raise ValueError(f"input: needs shape [B, {inputs}] or [{inputs}], not {list(x.shape)}")
        h, c = call(x[None], *(None if s is None else s[None] for s in (h, c)))
        return h[0], None if c is None else c[0]

    return call


def _steps(module: Any, is_deep: bool) -> Shapes:
    return [(4, module.input_size)]


_declared = partial(quantized, dtypes=("int8", "float16"), inputs=_steps, onnx=("recurrent",))


@_declared(replaces=nn.LSTMCell, kind=LayerKind.LSTM)
class QuantizedLSTMCell(QuantizedCell):
    """nn.LSTMCell's function, options and shapes, for inputs of any float dtype."""

    _KIND = Kind.LSTM

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return (h', c') after `input` [B, input_size], or [input_size].

        `hx` is (h, c), zeros where None, in the input's dtype. Raises TypeError or ValueError,
        which name the argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)  # type: ignore[no-any-return]
        h, c = (None, None) if hx is None else pair(hx)
        return self._run(input, h, c)


class _WithoutMemory(QuantizedCell):
    """Cells whose state is h alone."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:  # noqa: A002
        """h' after `input` [B, input_size], or [input_size].

        `hx` is h, zeros where None, in the input's dtype. Raises TypeError or ValueError, which
        name the argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)
        return self._run(input, hx, None)[0]


@_declared(replaces=nn.GRUCell, kind=LayerKind.GRU)
class QuantizedGRUCell(_WithoutMemory):
    """nn.GRUCell's function, options and shapes, for inputs of any float dtype."""

    _KIND = Kind.GRU


@_declared(replaces=nn.RNNCell, kind=LayerKind.RNN)
class QuantizedRNNCell(_WithoutMemory):
    """nn.RNNCell's function, options and shapes, for inputs of any float dtype."""

    AUTOCAST = True
    CONFIG = (*_CONFIG[:-1], "nonlinearity", "storage")
    nonlinearity = "tanh"
