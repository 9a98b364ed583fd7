"""Layers in another process: what they compute there, and what it writes into shared memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from octavo.torch import quantize_dynamic
from tests.models import assert_bits
from tests.torch.layers.test_torch_every_layer import EVERY, given, made
from tests.torch.recurrent_cases import DEEP, float_cell, float_stack, numbers, quantized


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    """Another process."""
    with multiprocessing.get_context("spawn").Pool(1) as made:
        yield made


def _outputs(layers: list[nn.Module], inputs: list[tuple[Tensor, ...]]) -> list[Any]:
    pairs = zip(layers, inputs, strict=True)
    return [tree_leaves(layer(*some))[0].numpy() for layer, some in pairs]


def test_layers_compute_the_same(pool: Any) -> None:
    """Sending a tensor moves it into shared memory, and frees what it was in."""
    layers = [made(name) for name in EVERY]
    inputs = [given(name) for name in EVERY]
    layers += [quantized(float_cell("gru")), quantized(float_stack("lstm", **DEEP))]
    inputs += [(numbers(4, 13),), (numbers(5, 3, 13),)]
    before = _outputs(layers, inputs)
    there = pool.apply(_outputs, (layers, inputs))
    freed = [b for layer in layers for b in layer.buffers()]
    kept = [torch.ones_like(b, memory_format=torch.contiguous_format) for b in freed * 4]
    for y, again, other in zip(before, _outputs(layers, inputs), there, strict=True):
        assert_bits(torch.from_numpy(again), torch.from_numpy(y))
        assert_bits(torch.from_numpy(other), torch.from_numpy(y))
    del kept


def model(seed: int) -> Any:
    """A quantized layer behind a float one, which trains."""
    torch.manual_seed(seed)
    return quantize_dynamic(nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 40)), {"0"})


def _write(layer: Any, other: Any) -> None:
    for to, value in zip(layer.buffers(), other.buffers(), strict=True):
        to.copy_(value)


def test_what_another_process_writes_into_shared_memory_counts(pool: Any) -> None:
    layer, other, x = model(0)[0].share_memory(), model(1)[0], torch.randn(3, 64)
    before = layer(x)
    pool.apply(_write, (layer, other))
    assert torch.equal(layer(x), other(x)) and not torch.equal(before, other(x))
