"""nn.GRUCell with int8 weights: rows of x and h become uint8 as they come."""

from __future__ import annotations

from torch import Tensor

from octavo.core.recurrent_weights import Kind
from octavo.torch.modules._cell import QuantizedCell
from octavo.torch.modules._fx import as_leaf, is_proxy


class QuantizedGRUCell(QuantizedCell):
    """nn.GRUCell's function, options and shapes, for inputs of any float dtype."""

    CONFIG = ("input_size", "hidden_size", "bias", "storage")

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, storage: str = "int8"
    ) -> None:
        super().__init__()
        self._set_up(Kind.GRU, input_size, hidden_size, bias, storage)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:  # noqa: A002
        """h' after `input` [B, input_size], or [input_size].

        `hx` is h, zeros where None, in the input's dtype. Raises TypeError or ValueError, which
        name the argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)
        return self._run(input, hx, None)[0]
