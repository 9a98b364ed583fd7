"""Small models for tests of saving: how each is made, quantized and run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic


class Tied(nn.Module):
    """Two linear layers and an embedding with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 64)
        self.head = nn.Linear(64, 40, bias=False)
        self.other = nn.Linear(64, 40)
        self.head.weight = self.other.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return self.head(x) + self.other(x)


class Twice(nn.Module):
    """One layer in two places, and one block in two."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.block = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32))
        self.again = self.first
        self.blocks = nn.ModuleList([self.block, nn.ReLU(), self.block])

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.first(x))
        for block in self.blocks:
            x = block(x)
        return x


class Stateful(nn.Module):
    """Tensors wherever a module may hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.gain = nn.Parameter(torch.ones(16), requires_grad=False)
        self.narrow = nn.Parameter(torch.ones(16, dtype=torch.bfloat16))
        self.register_buffer("positions", torch.arange(16.0), persistent=False)
        self.register_buffer("nothing", None)
        self.register_buffer("flag", torch.tensor(True))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.frequencies = torch.linspace(1, 2, 16)
        self.listed = [torch.ones(16), "words", (torch.zeros(2), torch.full((16,), 3.0))]
        self.by_name = {"a": torch.arange(16.0), 7: torch.ones(()), None: 1}
        self.across = nn.Parameter(torch.randn(16, 8).t())

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.fc(x)) * self.gain * self.narrow + self.positions * self.frequencies
        x = x + self.listed[0] + self.listed[2][1] + self.by_name["a"] * self.by_name[7]
        return x @ self.across.t()


class Recurrent(nn.Module):
    """A stack of LSTM layers of which one may stay float."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(24, 40, num_layers=3, bidirectional=True, dropout=0.5)
        self.gru = nn.GRU(80, 24, batch_first=True)
        self.float_gru = nn.GRU(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.float_gru(self.gru(self.lstm(x)[0])[0])[0]


class Cells(nn.Module):
    """One step of each cell."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(8, 16), nn.GRUCell(16, 8), nn.RNNCell(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(self.gru(self.lstm(x)[0]))


class Tables(nn.Module):
    """Lookups."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Embedding(30, 20, padding_idx=1)
        self.bag = nn.EmbeddingBag(30, 20, mode="sum")
        self.fc = nn.Linear(20, 20)

    def forward(self, ids: Tensor) -> Tensor:
        return self.fc(self.one(ids).sum(1) + self.bag(ids))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 33), nn.ReLU())


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 8, (3, 1), groups=2)
    )


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


@dataclass(frozen=True)
class Case:
    """`factory` is quantized with `options`; `inputs` are what it is called with."""

    factory: Callable[[], nn.Module]
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def quantized(self) -> nn.Module:
        torch.manual_seed(0)
        return quantize_dynamic(self.factory(), **self.options)


def _x(*shape: int) -> tuple[Tensor, ...]:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(1)),)


_IDS = (torch.tensor([[3, 1, 29, 7], [1, 1, 0, 12]]),)
CASES = {
    "mlp": Case(mlp, _x(5, 48)),
    "accurate": Case(mlp, _x(5, 48), {"recipe": "int8-accurate"}),
    "int4": Case(mlp, _x(5, 48), {"recipe": "int4"}),
    "float16": Case(mlp, _x(5, 48), {"dtype": torch.float16}),
    "root": Case(lambda: nn.Linear(20, 30), _x(2, 20)),
    "tied": Case(Tied, _IDS),
    "twice": Case(Twice, _x(3, 32)),
    "stateful": Case(Stateful, _x(3, 16)),
    "recurrent": Case(Recurrent, _x(6, 2, 24), {"qconfig_spec": {nn.LSTM, "gru"}}),
    "float16 recurrent": Case(Recurrent, _x(6, 2, 24), {"dtype": torch.float16}),
    "cells": Case(Cells, _x(3, 8)),
    "tables": Case(Tables, _IDS, {"dtype": torch.quint8}),
    "both": Case(Tables, _IDS, {"recipe": "int8"}),
    "convolutions": Case(convolutions, _x(2, 3, 9, 9), {"qconfig_spec": {nn.Conv2d}}),
    "transformer": Case(transformer, _x(2, 7, 32)),
}
