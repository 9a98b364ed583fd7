"""Packed sequences through recurrent layers under torch.compile."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

from octavo.torch import quantize_dynamic


class Packs(nn.Module):
    def __init__(self, layer: nn.Module, is_sorted: bool) -> None:
        super().__init__()
        self.layer, self.is_sorted, self.out = layer, is_sorted, nn.Linear(16, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=self.is_sorted)
        y, state = self.layer(packed)
        padded, _ = pad_packed_sequence(y)
        return self.out(padded), state


@pytest.mark.sweep(4)  # each kind and each lengths once
@pytest.mark.parametrize("lengths", [(6, 4, 1), (6, 6, 6), (2, 6, 3)], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.RNN, nn.GRU])
def test_compiled_as_eager(kind: Any, lengths: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    is_sorted = list(lengths) == sorted(lengths, reverse=True)
    model = quantize_dynamic(Packs(kind(8, 8, bidirectional=True), is_sorted))
    x, sizes = torch.randn(6, 3, 8), torch.tensor(lengths)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        found, expected = tree_leaves(compiled(x, sizes)), tree_leaves(model(x, sizes))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        packed = pack_padded_sequence(x, sizes, enforce_sorted=is_sorted)
        y, _ = torch.compile(model.layer, backend="aot_eager")(packed)
        assert isinstance(y, PackedSequence)
        assert torch.equal(y.data, model.layer(packed)[0].data)
