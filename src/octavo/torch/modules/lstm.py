"""nn.LSTM with int8 weights: rows of x and h become uint8 as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from octavo.core.recurrent_weights import Kind
from octavo.torch.modules._fx import as_leaf, is_proxy
from octavo.torch.modules._recurrent import QuantizedRecurrent
from octavo.torch.modules._recurrent_state import pair


class QuantizedLSTM(QuantizedRecurrent):
    """nn.LSTM's function, options and shapes, for inputs of any float dtype.

    Buffers of layer k, and with `_reverse` of its other direction: `packed_ih_l{k}` uint8 and
    `scale_ih_l{k}` float32 [4 * hidden_size], the same with `hh` and (with `proj_size`) `hr`,
    `bias_ih_l{k}` and `bias_hh_l{k}` float32 [4 * hidden_size]; gates in PyTorch's order, i, f, g,
    o. A layer that is not int8 has `blocks_ih_l{k}` in place of the first two.
    """

    AUTOCAST = True
    CONFIG = (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
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
        proj_size: int = 0,
        storage: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.proj_size = proj_size
        self._set_up(
            Kind.LSTM,
            storage,
            input_size=input_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
        )

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:  # noqa: A002
        """(output, (h, c)) of `input` [T, B, input_size], or whatever else nn.LSTM takes.

        `hx` is (h0, c0), in the input's dtype. Raises TypeError or ValueError, which name the
        argument.
        """
        if is_proxy(input):
            return as_leaf(self, input, hx)  # type: ignore[no-any-return]
        h0, c0 = (None, None) if hx is None else pair(hx)
        y, h, c = self._run(input, h0, c0)
        return y, (h, c)
