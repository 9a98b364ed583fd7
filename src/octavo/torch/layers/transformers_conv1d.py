"""Hugging Face's Conv1D: a linear layer whose float weight is [in, out]."""

from __future__ import annotations

from torch import Tensor, nn

from octavo.recipe import Kind
from octavo.torch.layers.half_linear import QuantizedHalfLinear
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.rows import LinearModule


class _Transposed(LinearModule):
    """What sets Conv1D apart from nn.Linear: its names, and the shape of its weight."""

    _CHANNELS = 1

    @property
    def nx(self) -> int:
        """Input features."""
        return self.in_features

    @property
    def nf(self) -> int:
        """Output features."""
        return self.out_features

    @property
    def weight(self) -> Tensor:
        """The weight as float32 [in_features, out_features], computed when it is used."""
        return self._computed_weight(self.sizes[::-1], lambda: self._dequantize().t())

    @staticmethod
    def _as_rows(weight: Tensor) -> Tensor:
        return weight.t()


@quantized(kind=Kind.LINEAR, onnx=("half_linear",))
class QuantizedHalfTransformersConv1D(_Transposed, QuantizedHalfLinear):
    """`transformers.pytorch_utils.Conv1D` with weights of 16 bits."""


@quantized(
    replaces="transformers.pytorch_utils.Conv1D",
    kind=Kind.LINEAR,
    chosen_with=nn.Linear,
    onnx=("linear",),
)
class QuantizedTransformersConv1D(_Transposed, QuantizedLinear):
    """`transformers.pytorch_utils.Conv1D` as a QuantizedLinear, whose buffers it has."""

    _HALF = QuantizedHalfTransformersConv1D
