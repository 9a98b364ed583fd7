"""Small models for tests of saving: how each is made, quantized and run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic
from tests.models import Tables, Twice, convolutions, encoder, mlp, seeded


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
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(24, 40, num_layers=3, bidirectional=True, dropout=0.5)
        self.gru = nn.GRU(80, 24, batch_first=True)
        self.float_gru = nn.GRU(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.float_gru(self.gru(self.lstm(x)[0])[0])[0]


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(8, 16), nn.GRUCell(16, 8), nn.RNNCell(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(self.gru(self.lstm(x)[0]))


@dataclass(frozen=True)
class Case:
    """`factory` is quantized with `options`; `inputs` are what it is called with."""

    factory: Callable[[], nn.Module]
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def quantized(self) -> nn.Module:
        torch.manual_seed(0)
        return quantize_dynamic(self.factory(), **self.options)


def net() -> nn.Module:
    return mlp(48, 96, 33)


_IDS = (torch.tensor([[3, 1, 29, 7], [1, 1, 0, 12]]),)
CASES = {
    "mlp": Case(net, (seeded(5, 48),)),
    "accurate": Case(net, (seeded(5, 48),), {"recipe": "int8-accurate"}),
    "int4": Case(net, (seeded(5, 48),), {"recipe": "int4"}),
    "float16": Case(net, (seeded(5, 48),), {"dtype": torch.float16}),
    "root": Case(lambda: nn.Linear(20, 30), (seeded(2, 20),)),
    "tied": Case(Tied, _IDS),
    "twice": Case(Twice, (seeded(3, 32),)),
    "stateful": Case(Stateful, (seeded(3, 16),)),
    "recurrent": Case(Recurrent, (seeded(6, 2, 24),), {"qconfig_spec": {nn.LSTM, "gru"}}),
    "float16 recurrent": Case(Recurrent, (seeded(6, 2, 24),), {"dtype": torch.float16}),
    "cells": Case(Cells, (seeded(3, 8),)),
    "tables": Case(Tables, _IDS, {"dtype": torch.quint8}),
    "both": Case(Tables, _IDS, {"recipe": "int8"}),
    "convolutions": Case(convolutions, (seeded(2, 3, 9, 9),), {"qconfig_spec": {nn.Conv2d}}),
    "transformer": Case(encoder, (seeded(2, 7, 32),)),
}
