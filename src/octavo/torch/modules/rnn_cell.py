"""nn.RNNCell with int8 weights: rows of x and h become uint8 as they come."""

from __future__ import annotations

from torch import Tensor

from octavo.torch.modules._cell import QuantizedCell
from octavo.torch.modules._fx import as_leaf, is_proxy
from octavo.torch.modules._recurrent_state import plain_kind


class QuantizedRNNCell(QuantizedCell):
    """nn.RNNCell's function, options and shapes, for inputs of any float dtype."""

    AUTOCAST = True
    CONFIG = ("input_size", "hidden_size", "bias", "nonlinearity", "storage")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        storage: str = "int8",
    ) -> None:
        super().__init__()
        self.nonlinearity = nonlinearity
        self._set_up(plain_kind(nonlinearity), input_size, hidden_size, bias, storage)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:  # noqa: A002
        """h' after `input` [B, input_size], or [input_size].

        `hx` is h, zeros where None, in the input's dtype. Raises TypeError or ValueError, which
        name the argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)
        return self._run(input, hx, None)[0]
