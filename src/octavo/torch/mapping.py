"""Which quantized layer takes the place of which float one."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils.parametrize import type_before_parametrizations

from octavo.torch.modules.conv import QuantizedConv1d, QuantizedConv2d
from octavo.torch.modules.embedding import QuantizedEmbedding
from octavo.torch.modules.embedding_bag import QuantizedEmbeddingBag
from octavo.torch.modules.gru import QuantizedGRU
from octavo.torch.modules.gru_cell import QuantizedGRUCell
from octavo.torch.modules.hf_conv1d import QuantizedTransformersConv1D
from octavo.torch.modules.linear import QuantizedLinear
from octavo.torch.modules.lstm import QuantizedLSTM
from octavo.torch.modules.lstm_cell import QuantizedLSTMCell
from octavo.torch.modules.multihead_attention import QuantizedMultiheadAttention
from octavo.torch.modules.rnn import QuantizedRNN
from octavo.torch.modules.rnn_cell import QuantizedRNNCell


def default_mapping() -> dict[type, type]:
    """Float layer types and what they become; a new dict, to extend and to pass as `mapping`."""
    found: dict[type, type] = {
        nn.Linear: QuantizedLinear,
        NonDynamicallyQuantizableLinear: QuantizedLinear,
        nn.LSTM: QuantizedLSTM,
        nn.GRU: QuantizedGRU,
        nn.RNN: QuantizedRNN,
        nn.LSTMCell: QuantizedLSTMCell,
        nn.GRUCell: QuantizedGRUCell,
        nn.RNNCell: QuantizedRNNCell,
        nn.MultiheadAttention: QuantizedMultiheadAttention,
        nn.Embedding: QuantizedEmbedding,
        nn.EmbeddingBag: QuantizedEmbeddingBag,
        nn.Conv1d: QuantizedConv1d,
        nn.Conv2d: QuantizedConv2d,
    }
    transformers = sys.modules.get("transformers.pytorch_utils")
    if transformers is not None:  # where it is not loaded, no model has its layers
        found[transformers.Conv1D] = QuantizedTransformersConv1D
    return found


def own_type(module: nn.Module) -> type:
    """The module's type, as it was before torch.nn.utils.parametrize gave it another."""
    return type_before_parametrizations(module)  # type: ignore[no-any-return]


def mapped_type(module: nn.Module, mapping: Mapping[type, type]) -> type | None:
    """The key of `mapping` that `module` falls under: its type, or the nearest one it inherits.

    A subclass counts only if its forward is that of the type it inherits: another forward may do
    anything with the weight.
    """
    kind = own_type(module)
    if kind in mapping:
        return kind
    for base in kind.__mro__[1:]:
        if base in mapping:
            return base if same_forward(kind, base) else None
    return None


def same_forward(kind: type, base: type) -> bool:
    """Whether modules of the two types compute alike, as far as that can be told."""
    return getattr(kind, "forward", None) is getattr(base, "forward", None)
