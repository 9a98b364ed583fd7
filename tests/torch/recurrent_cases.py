"""Recurrent layers of PyTorch, their quantized forms, and one step of each stated plainly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from octavo.core.qparams import QType
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch.layers.cells import QuantizedGRUCell, QuantizedLSTMCell, QuantizedRNNCell
from octavo.torch.layers.recurrent import QuantizedGRU, QuantizedLSTM, QuantizedRNN
from octavo.torch.qconfig import default_dynamic_qconfig
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.weight_choice import SchemeChoice, WeightChoice
from tests.core import statement
from tests.core.recurrent_statement import Direction

STACKS: dict[str, tuple[Any, Any]] = {
    "lstm": (nn.LSTM, QuantizedLSTM),
    "gru": (nn.GRU, QuantizedGRU),
    "tanh": (nn.RNN, QuantizedRNN),
    "relu": (nn.RNN, QuantizedRNN),
}
CELLS: dict[str, tuple[Any, Any]] = {
    "lstm": (nn.LSTMCell, QuantizedLSTMCell),
    "gru": (nn.GRUCell, QuantizedGRUCell),
    "tanh": (nn.RNNCell, QuantizedRNNCell),
    "relu": (nn.RNNCell, QuantizedRNNCell),
}
every_kind = pytest.mark.parametrize("kind", STACKS)

DEFAULT = SchemeChoice(Scheme())
CHOICES: dict[str, WeightChoice] = {
    "default": DEFAULT,
    "per tensor": SchemeChoice(Scheme(WeightScheme(granularity=Granularity.TENSOR))),
    "7 bits": SchemeChoice(Scheme(WeightScheme(reduce_range=True))),
    "qconfig": QConfigChoice(default_dynamic_qconfig),
}
FLOAT16 = SchemeChoice(Scheme(WeightScheme(qtype=QType.FLOAT16), None))
AFFINE = SchemeChoice(
    Scheme(
        WeightScheme(symmetric=False), ActivationScheme(granularity=Granularity.GROUP, group=128)
    )
)

DEEP: dict[str, Any] = {"num_layers": 2, "bidirectional": True}
"""Four directions."""

CLOSE = 3e-6
"""Float32's roundings of one step, where gates are below 10."""


def float_stack(kind: str, inputs: int = 13, hidden: int = 21, **options: Any) -> Any:
    torch.manual_seed(hidden)
    if kind in ("tanh", "relu"):
        options["nonlinearity"] = kind
    return STACKS[kind][0](inputs, hidden, **options).eval()


def float_cell(kind: str, inputs: int = 13, hidden: int = 21, **options: Any) -> Any:
    torch.manual_seed(hidden)
    if kind in ("tanh", "relu"):
        options["nonlinearity"] = kind
    return CELLS[kind][0](inputs, hidden, **options)


def quantized(module: nn.Module, choice: Any = DEFAULT, **more: Any) -> Any:
    pairs = [*STACKS.values(), *CELLS.values()]
    return next(q for f, q in pairs if type(module) is f).from_float(module, choice, **more)


def numbers(*shape: int, seed: int = 1, size: float = 1.0) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=made) * size


def states(kind: str, *shape: int) -> Any:
    h = numbers(*shape, seed=2, size=0.5)
    return (h, numbers(*shape, seed=3)) if kind == "lstm" else h


def parts(hx: Any) -> tuple[Tensor, ...]:
    return hx if isinstance(hx, tuple) else (hx,)


def mapped(call: Any, hx: Any) -> Any:
    return tuple(call(t) for t in hx) if isinstance(hx, tuple) else call(hx)


@dataclass(frozen=True)
class Stated(Direction):
    """A direction that multiplies by the integers of a layer."""

    held: dict[str, Any] = field(default_factory=dict)

    def product(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        q, scale = next(self.held[n] for n in ("w_ih", "w_hh", "w_hr") if getattr(self, n) is w)
        rows, row_scale, zero = statement.quantize_rows(x.astype(np.float32))
        sums = (rows.astype(np.int64) - zero).astype(np.float64) @ q.T.astype(np.float64)
        return sums * row_scale.astype(np.float64) * scale.astype(np.float64)


def stated(layer: Any, kind: str, suffix: str = "") -> Stated:
    """A direction of `layer` by what its `integers` and biases say."""
    held, weights, w = layer.integers(), layer.dequantized(), {}
    for part in ("ih", "hh", "hr"):
        name = f"weight_{part}{suffix}"
        if name in held:
            w[f"w_{part}"] = tuple(t.numpy() for t in held[name])
    arrays = {name: weights[f"weight_{name[2:]}{suffix}"].numpy() for name in w}
    biases = {
        f"b_{part}": weights[f"bias_{part}{suffix}"].numpy()
        for part in ("ih", "hh")
        if f"bias_{part}{suffix}" in weights
    }
    return Stated(kind, layer.hidden_size, **arrays, **biases, held=w)


def proj_of(kind: str) -> dict[str, Any]:
    return {"proj_size": 6} if kind == "lstm" else {}
