"""Octavo's layers as benchmarks call them: the only benchmark module that knows their interface.

A linear layer is the module of the PyTorch front end, its Python included; a convolution a module
that allocates the output and hands its address to the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers import Bound, Float32, Layer, torch_bound, torch_linear_module
from benchmarks.peers_rnn import Rnn
from octavo.core import kernels
from octavo.core.attention import NO_STRIDES, run_attention
from octavo.core.kernels import (
    Part,
    isa,
    isas,
    pack,
    part_seconds,
    peak_gops,
    read_gbps,
    unpack,
    use_isa,
)
from octavo.recipe import ActivationScheme, Granularity, Recipe, Scheme

__all__ = [
    "OCTAVO",
    "Part",
    "attention",
    "conv",
    "isa",
    "isas",
    "kernel",
    "linear",
    "linear_module",
    "pack",
    "part_seconds",
    "peak_gops",
    "read_gbps",
    "recurrent",
    "set_num_threads",
    "unpack",
    "use_isa",
]

OCTAVO = "octavo"


def linear(w: Float32, bias: Float32, group: int = 0) -> Layer:
    """The layer as a `torch.nn.Module`."""
    return partial(torch_bound, linear_module(w, bias, group))


def linear_module(w: Float32, bias: Float32, group: int = 0) -> Any:
    """What `octavo.torch.quantize_dynamic` makes of a Linear; `group` inputs share a scale."""
    from octavo.torch import quantize_dynamic

    activation = ActivationScheme(granularity=Granularity.GROUP, group=group) if group else None
    scheme = Scheme(activation=activation) if group else Scheme()
    model = torch_linear_module(w, bias)
    return quantize_dynamic(model, recipe=Recipe("benchmark", default=scheme))


def linear_of(recipe: str, w: Float32, bias: Float32) -> Layer:
    """The layer that a preset makes, as a `torch.nn.Module`."""
    from octavo.torch import quantize_dynamic

    return partial(torch_bound, quantize_dynamic(torch_linear_module(w, bias), recipe=recipe))


def weight_bytes(recipe: str, w: Float32, bias: Float32) -> int:
    """Of the packed weight of that layer, all that lies in it included."""
    from octavo.torch import quantize_dynamic

    made = quantize_dynamic(torch_linear_module(w, bias), recipe=recipe)
    return max(int(buffer.nbytes) for buffer in made.buffers())


def kernel(w: Float32, bias: Float32) -> Callable[[Float32], Callable[[], None]]:
    """The layer's kernel alone, over addresses of an input and an output that stay."""
    run = kernels.Linear.from_float(w, bias).run

    def bind(x: Float32) -> Callable[[], None]:
        (rows, k), n = x.shape, len(w)
        y = np.empty((rows, n), np.float32)
        given, made = x.ctypes.data, y.ctypes.data

        def call(keep: tuple[Float32, Float32] = (x, y)) -> None:
            run(given, rows, k, made, n)

        return call

    return bind


def attention(q: Float32, k: Float32, v: Float32, bfloat16: bool = False) -> Bound:
    """The kernel over q [B, S, H, D], k and v [B, T, G, D], into new memory."""
    (batch, queries, heads, depth), (keys, kv_heads) = q.shape, k.shape[1:3]
    sizes = (batch, heads, kv_heads, queries, keys, depth, depth)
    steps = tuple(
        s
        for n, h in ((queries, heads), *[(keys, kv_heads)] * 2, (queries, heads))
        for s in (n * h * depth, h * depth, depth)
    )
    given = tuple(x.ctypes.data for x in (q, k, v))

    def run(keep: tuple[Float32, ...] = (q, k, v)) -> Float32:
        y = np.empty(q.shape, np.float32)
        run_attention(
            (*given, y.ctypes.data),
            sizes,
            steps,
            depth**-0.5,
            *(0, NO_STRIDES) * 2,
            False,
            0,
            0,
            0.0,
            0,
            bfloat16,
            0,
        )
        return y

    return Bound(run, run)


def set_num_threads(threads: int) -> None:
    """For Octavo's kernels, however they are called."""
    import torch

    torch.set_num_threads(threads)
    kernels.set_num_threads(threads)


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
    """A Conv2d of stride 1."""
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
