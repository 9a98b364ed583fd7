"""Octavo's kernels as benchmarks call them: the only benchmark module that knows their interface.

A linear layer is called as the PyTorch front end calls it: a module whose `forward` allocates the
output and hands raw pointers over.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.peers import Bound, Float32, Layer, torch_bound
from benchmarks.peers_rnn import Rnn
from octavo.core import kernels
from octavo.core.kernels import isa, peak_gops, read_gbps, set_num_threads

__all__ = [
    "OCTAVO",
    "conv",
    "isa",
    "linear",
    "linear_module",
    "peak_gops",
    "read_gbps",
    "recurrent",
    "set_num_threads",
]

OCTAVO = "octavo"


def linear(w: Float32, bias: Float32, group: int = 0) -> Layer:
    """The layer as a `torch.nn.Module`."""
    return partial(torch_bound, linear_module(w, bias, group))


def linear_module(w: Float32, bias: Float32, group: int = 0) -> Any:
    """What the PyTorch front end makes of a Linear, for inputs [rows, inputs]."""
    import torch

    packed = kernels.Linear.from_float(w, bias, group)

    class Linear(torch.nn.Module):  # type: ignore[misc]  # PyTorch is Any here
        def __init__(self) -> None:
            super().__init__()
            self.packed, self.outputs = packed, packed.n

        def forward(self, x: Any) -> Any:
            rows = x.shape[0]
            y = torch.empty(rows, self.outputs)
            self.packed.run(x.data_ptr(), rows, x.stride(0), y.data_ptr(), self.outputs)
            return y

    return Linear()


def recurrent(rnn: Rnn, weights: Sequence[Float32]) -> Layer:
    """An LSTM or GRU; numpy in, numpy out."""
    from octavo.core.recurrent import Gru, Lstm

    kind = Lstm if rnn.kind == "LSTM" else Gru
    layer: Any = kind.from_float(
        weights,
        hidden_size=rnn.hidden,
        num_layers=rnn.layers,
        bidirectional=rnn.bidirectional,
    )
    return lambda x: Bound(lambda: layer(x), lambda: layer(x)[0])


def conv(w: Float32, bias: Float32, padding: int, groups: int) -> Layer:
    """A Conv2d of stride 1, called as the PyTorch front end calls it."""
    return partial(torch_bound, _conv_module(w, bias, padding, groups))


def _conv_module(w: Float32, bias: Float32, padding: int, groups: int) -> Any:
    import torch

    packed = kernels.Conv2d.from_float(w, bias, padding=padding, groups=groups)
    grown = 2 * padding - w.shape[2] + 1

    class Conv2d(torch.nn.Module):  # type: ignore[misc]  # PyTorch is Any here
        def forward(self, x: Any) -> Any:
            images, _, height, width = x.shape
            y = torch.empty(images, w.shape[0], height + grown, width + grown)
            packed.run(x.data_ptr(), images, height, width, y.data_ptr())
            return y

    return Conv2d()
