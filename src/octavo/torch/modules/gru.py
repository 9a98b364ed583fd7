"""nn.GRU with int8 weights: rows of x and h become uint8 as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from octavo.core.recurrent_weights import Kind
from octavo.torch.modules._fx import as_leaf, is_proxy
from octavo.torch.modules._recurrent import QuantizedRecurrent


class QuantizedGRU(QuantizedRecurrent):
    """nn.GRU's function, options and shapes, for inputs of any float dtype.

    Buffers as those of `QuantizedLSTM`, with three gates: r, z, n.
    """

    CONFIG = (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "storage",
    )

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        storage: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_up(
            Kind.GRU,
            storage,
            input_size=input_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
        )

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:  # noqa: A002
        """(output, h) of `input` [T, B, input_size], or whatever else nn.GRU takes.

        `hx` is the initial state, in the input's dtype. Raises TypeError or ValueError, which name
        the argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)  # type: ignore[no-any-return]
        return self._run(input, hx, None)[:2]
