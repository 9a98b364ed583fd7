"""Octavo's kernels as benchmarks call them: the only benchmark module that knows their interface.

A linear layer is called as the PyTorch front end calls it: a module whose `forward` allocates the
output and hands raw pointers over.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Bound, Float32, Layer, torch_bound
from benchmarks.peers_rnn import Rnn

OCTAVO = "octavo"


def available() -> bool:
    """Whether this tree has the layers."""
    names = ("linear", "recurrent", "convolution")
    return all(importlib.util.find_spec(f"octavo.core.{name}") for name in names)


def kernels() -> Any:
    """`octavo.core.kernels`."""
    return importlib.import_module("octavo.core.kernels")


def linear(w: Float32, bias: Float32, group: int = 0) -> Layer:
    """The layer as a `torch.nn.Module`."""
    return partial(torch_bound, linear_module(w, bias, group))


def linear_module(w: Float32, bias: Float32, group: int = 0) -> Any:
    """What the PyTorch front end makes of a Linear, for inputs [rows, inputs]."""
    import torch

    packed = importlib.import_module("octavo.core.linear").Linear.from_float(w, bias, group=group)

    class Linear(torch.nn.Module):  # type: ignore[misc]  # PyTorch is Any here
        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.outputs, self.packed = outputs, packed

        def forward(self, x: Any) -> Any:
            rows = x.shape[0]
            y = torch.empty(rows, self.outputs)
            self.packed.run(x.data_ptr(), rows, x.stride(0), y.data_ptr(), self.outputs)
            return y

    return Linear(len(w))


def recurrent(rnn: Rnn, weights: Sequence[Float32]) -> Layer:
    """An LSTM or GRU; numpy in, numpy out."""
    module = importlib.import_module("octavo.core.recurrent")
    kind = module.Lstm if rnn.kind == "LSTM" else module.Gru
    layer = kind.from_float(
        list(weights),
        hidden_size=rnn.hidden,
        num_layers=rnn.layers,
        bidirectional=rnn.bidirectional,
    )
    return lambda x: Bound(lambda: layer(x), lambda: np.asarray(layer(x)[0]))


def conv(w: Float32, bias: Float32, padding: int, groups: int) -> Layer:
    """A Conv2d of stride 1; numpy in, numpy out."""
    layer = importlib.import_module("octavo.core.convolution").Conv2d.from_float(
        w, bias, stride=1, padding=padding, dilation=1, groups=groups
    )
    return lambda x: Bound(lambda: layer(x), lambda: np.asarray(layer(x)))


def peak_gops(isa: str) -> float:
    """Billions of int8 operations a second that one core can do in registers."""
    return float(kernels().peak_gops(isa))


def read_gbps(array: NDArray[Any]) -> float:
    """Billions of bytes a second at which one thread reads `array`."""
    return float(kernels().read_gbps(array))


def isa() -> str:
    """The instruction set in use."""
    return str(kernels().isa())


def set_num_threads(threads: int) -> None:
    """Threads of every later call."""
    kernels().set_num_threads(threads)
