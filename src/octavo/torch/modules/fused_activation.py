"""What stands where an activation was that the linear layer before it has taken over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from octavo.torch.modules._base import QuantizedModule


class FusedActivation(QuantizedModule):
    """Returns its input: the layer before it has applied `activation` already.

    Hooks on it see what hooks on the activation saw.
    """

    CONFIG = ("activation",)

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.activation = activation

    @classmethod
    def from_float(cls, module: nn.Module, choice: Any, quantizer: Any, name: str) -> nn.Module:
        raise NotImplementedError("made by octavo.torch.fusion, with the linear layer before it")

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        return input

    def _kernel(self) -> Callable[[Tensor], Tensor]:
        return self.forward

    def extra_repr(self) -> str:
        return f"{self.activation}, in the layer before it"
