"""nn.LSTMCell with int8 weights: rows of x and h become uint8 as they come."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from octavo.core.recurrent_weights import Kind
from octavo.torch.modules._cell import QuantizedCell
from octavo.torch.modules._fx import as_leaf, is_proxy
from octavo.torch.modules._recurrent_state import pair


class QuantizedLSTMCell(QuantizedCell):
    """nn.LSTMCell's function, options and shapes, for inputs of any float dtype."""

    CONFIG = ("input_size", "hidden_size", "bias", "storage")

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, storage: str = "int8"
    ) -> None:
        super().__init__()
        self._set_up(Kind.LSTM, input_size, hidden_size, bias, storage)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:  # noqa: A002
        """(h', c') after `input` [B, input_size], or [input_size].

        `hx` is (h, c), zeros where None, in the input's dtype. Raises TypeError or ValueError,
        which name the argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)  # type: ignore[no-any-return]
        h, c = (None, None) if hx is None else pair(hx)
        return self._run(input, h, c)
