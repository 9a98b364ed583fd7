"""What nn.LSTMCell, nn.GRUCell and nn.RNNCell share with int8 weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from octavo.core.recurrent import Recurrent
from octavo.core.recurrent_weights import Kind
from octavo.torch import ops
from octavo.torch.choice import DEFAULT, Choice
from octavo.torch.modules._autocast import autocasted_step, is_autocasting
from octavo.torch.modules._nested import refuse_nested
from octavo.torch.modules._recurrent_ops import (
    STATES,
    arguments,
    checked_state,
    plain,
    recurrent,
    widened,
)
from octavo.torch.modules._recurrent_state import HoldsWays, float_names, refusal
from octavo.torch.modules._recurrent_weights import Stack, Way, storage_of
from octavo.torch.quantizer import Quantizer

Call = Callable[[Tensor, Any, Any], tuple[Tensor, Any]]


class QuantizedCell(HoldsWays):
    """One step of one layer. `storage` is "int8", "float32", "float16" or "bfloat16".

    Buffers: `packed_ih` uint8 and `scale_ih` float32 [gates * hidden_size], the same with `hh`,
    `bias_ih` and `bias_hh` float32 [gates * hidden_size]; gates in PyTorch's order. What is not
    int8 is `blocks_ih` and `blocks_hh`.
    """

    AUTOCAST: ClassVar[bool] = False
    """Whether torch.autocast casts what the float cell gets: it does for RNN's alone."""

    def _set_up(
        self, kind: Kind, input_size: int, hidden_size: int, bias: bool, storage: str
    ) -> None:
        """What constructors do with their arguments."""
        self.input_size, self.hidden_size = input_size, hidden_size
        self.bias, self.storage = bias, storage
        self._stack = Stack(kind, input_size, hidden_size, hidden_size, False, bias, (storage,))
        self._arguments = arguments(self._stack)
        self._hold_ways([Way(kind, input_size, hidden_size, hidden_size, bias, storage)])

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        return refusal(module, choice)

    @classmethod
    def from_float(
        cls,
        module: nn.Module,
        choice: Choice = DEFAULT,
        quantizer: Quantizer | None = None,
        name: str = "",
    ) -> QuantizedCell:
        """From nn.LSTMCell, nn.GRUCell or nn.RNNCell."""
        options = {key: getattr(module, key) for key in cls.CONFIG if key != "storage"}
        make: Any = cls
        with torch.device("meta"):
            made = make(**options, storage=storage_of(choice))
        (way,) = made._ways
        weights = {part: getattr(module, part) for part in float_names(way)}
        made._fill(**way.quantized(weights, choice, quantizer or Quantizer(), name))
        return made  # type: ignore[no-any-return]

    def _kernel(self) -> Call:
        return caller(self._stack.network(self._tensors()))

    def _run(self, x: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Any]:
        """(h', c'); c' is None but for an LSTM."""
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

    def extra_repr(self) -> str:
        """What `print(model)` shows of the layer."""
        said = [f"{self.input_size}, {self.hidden_size}"]
        if not self.bias:
            said.append("bias=False")
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            said.append(f"nonlinearity={self.nonlinearity}")
        return ", ".join([*said, self.storage])


def check_step(x: Tensor, h: Tensor | None, c: Tensor | None, names: tuple[str, str]) -> None:
    """Raises ValueError where x is not one item or a batch of them, or a state is not as it."""
    if x.dim() not in (1, 2):
        raise ValueError(
            f"input: needs 2 axes, or 1 for an item without a batch; has {list(x.shape)}"
        )
    for name, state in zip(names, (h, c), strict=True):
        if state is not None and state.dim() != x.dim():
            raise ValueError(f"{name}: needs {x.dim()} axes, as the input; has {list(state.shape)}")


def caller(net: Recurrent) -> Call:
    """From a step in tensors to a kernel over addresses: (h', c'), c' is None but for an LSTM."""
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
