"""Small models for the tests of tuning; `module:factory` names some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm as parametrized_norm


class Speech(nn.Module):
    """A stack of LSTM layers, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, num_layers=3, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor, h: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, state = self.lstm(x, h)
        return self.head(y), state


class Tied(nn.Module):
    """A module that stands twice, and a weight that an embedding and a layer share."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 24)
        self.again = nn.Linear(24, 24)
        self.block = nn.Sequential(self.again, nn.GELU(), self.again, nn.ReLU())
        self.out = nn.Linear(24, 40, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.block(self.table(ids)))


class Attends(nn.Module):
    """Attention of its own beside an encoder, with a mask."""

    def __init__(self, fast: bool = True, layers: int = 2) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=fast)
        self.look = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor | None]:
        y = self.encoder(x, src_key_padding_mask=mask)
        found, weights = self.look(y, x, x)
        return {"found": found, "weights": weights}


@dataclass
class Result:
    """What a Hugging Face model returns is like it."""

    logits: Tensor
    count: Tensor
    nothing: None = None


class Feedforward(nn.Module):
    """Hooks on a layer, and an activation that joins the layer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 30)
        self.act = nn.SiLU()
        self.last = nn.Linear(30, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.first(x)))


class Wrapped(nn.Module):
    """Returns what is no tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Feedforward()

    def forward(self, x: Tensor) -> Result:
        return Result(self.inner(x), torch.tensor(x.shape[0]))


def normalized() -> nn.Module:
    """Weights that are computed: by a parametrization, and by a hook."""
    first = parametrized_norm(nn.Linear(10, 12))
    return nn.Sequential(first, nn.Tanh(), nn.utils.weight_norm(nn.Linear(12, 6)))


def speech() -> nn.Module:
    """The same weights each time."""
    torch.manual_seed(3)
    return Speech()


def wide() -> nn.Module:
    """20 MB of weights."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(16, 2048), nn.ReLU(), nn.Linear(2048, 2560), nn.Linear(2560, 4))
