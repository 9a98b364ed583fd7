"""Models for the tests of tuning that `module:factory` names, or that return what is no tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm as parametrized_norm

from tests.models import Feedforward, Speech, Tied, mlp


@dataclass
class Result:
    """What a Hugging Face model returns is like it."""

    logits: Tensor
    count: Tensor
    nothing: None = None


class Wrapped(nn.Module):
    """Returns what is no tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Feedforward()

    def forward(self, x: Tensor) -> Result:
        return Result(self.inner(x), torch.tensor(x.shape[0]))


def tied() -> Any:
    """A module that stands twice, and a weight that an embedding and a layer share."""
    model: Any = Tied(40, 24)
    again = model.inner
    model.inner = nn.Sequential(again, nn.GELU(), again, nn.ReLU())
    return model


def normalized() -> nn.Module:
    """Weights that are computed: by a parametrization, and by a hook."""
    first = parametrized_norm(nn.Linear(10, 12))
    return nn.Sequential(first, nn.Tanh(), nn.utils.weight_norm(nn.Linear(12, 6)))


def speech() -> nn.Module:
    return Speech()


def wide() -> nn.Module:
    return mlp(16, 2048, 2560, 4)
