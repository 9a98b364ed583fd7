"""QuantizedEmbeddingBag: sums, means and maxima of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from octavo.errors import NotTrainableError, OptionError
from octavo.torch.layers.embedding_bag import QuantizedEmbeddingBag
from tests.models import assert_bits
from tests.torch.behaviour import FLOATS, assert_close, assert_runs_in_graphs
from tests.torch.layers.cases import every, quantized
from tests.torch.tables import CHOICES, stated

ROWS, DIM = 50, 19
every_mode = pytest.mark.parametrize("mode", ["sum", "mean", "max"])
every_padding = pytest.mark.parametrize("padding", [None, 7], ids=["no padding", "padding"])


def made(choice: str, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return quantized(nn.EmbeddingBag(ROWS, DIM, dtype=dtype, **kwargs), choice)


def indices(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(0, ROWS, shape)


def expected(layer: Any, given: Tensor, offsets: Any = None, weights: Any = None) -> Tensor:
    """What torch's layer makes of the rows that the buffers say, in float64."""
    return functional.embedding_bag(
        given,
        stated(layer).double(),
        offsets,
        mode=layer.mode,
        per_sample_weights=None if weights is None else weights.double(),
        include_last_offset=layer.include_last_offset,
        padding_idx=layer.padding_idx,
    ).float()


@every(CHOICES)
@every_mode
@every_padding
def test_bags_of_one_length(choice: str, mode: str, padding: int | None) -> None:
    layer = made(choice, mode=mode, padding_idx=padding)
    i = indices(6, 5)
    i[2, 1:4] = 7
    i[4] = 7
    y = layer(i)
    assert_close(y, expected(layer, i), 1e-6)
    assert y[4].eq(0).all() == (padding is not None)
    assert_bits(layer(i.int()), y)
    assert_bits(made(choice, mode=mode, padding_idx=padding, include_last_offset=True)(i), y)
    assert layer(i[:0]).shape == (0, DIM)
    assert_bits(layer(i[:3, :0]), torch.zeros(3, DIM))


@every(CHOICES)
@every_mode
@every_padding
def test_bags_by_offsets(choice: str, mode: str, padding: int | None) -> None:
    i = indices(20)
    i[3:6] = 7
    for last in (False, True):
        layer = made(choice, mode=mode, include_last_offset=last, padding_idx=padding)
        offsets = torch.tensor([0, 3, 6, 6, 15] + [20] * last)
        y = layer(i, offsets)
        assert y.shape == (5, DIM)
        assert y[2].eq(0).all()
        assert_close(y, expected(layer, i, offsets), 1e-6)
        assert_bits(layer(i.int(), offsets.int()), y)
        assert_bits(layer(i, offsets.int()), y)
    layer = made(choice, mode=mode)
    assert_bits(layer(i[:0], torch.zeros(2, dtype=torch.int64)), torch.zeros(2, DIM))
    assert layer(i[:0], i[:0]).shape == (0, DIM)


@every(CHOICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_weights_of_samples(choice: str, dtype: torch.dtype) -> None:
    layer = made(choice, dtype, mode="sum")
    i, weights = indices(4, 6), torch.randn(4, 6).to(dtype)
    y = layer(i, per_sample_weights=weights)
    assert y.dtype == dtype
    error = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-6)
    assert_close(y, expected(layer, i, None, weights).to(dtype), error)
    flat = layer(i.reshape(-1), torch.arange(0, 24, 6), weights.reshape(-1))
    assert_close(flat, y, 1e-6)
    strided = layer(i.t(), per_sample_weights=weights.t())
    assert_close(strided, expected(layer, i.t(), None, weights.t()).to(dtype), error)


@every(CHOICES)
def test_nested_bags(choice: str) -> None:
    layer, parts = made(choice, mode="sum"), [indices(n) for n in (3, 0, 5)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert_bits(layer(nested), layer(torch.cat(parts), torch.tensor([0, 3, 3])))


REFUSED: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    ((indices(4),), ValueError, "offsets: are needed"),
    ((indices(2, 3), torch.tensor([0])), ValueError, "offsets: need to be None"),
    ((indices(2, 3, 4),), ValueError, "input: needs shape"),
    ((indices(4), torch.tensor([[0]])), ValueError, "offsets: need one axis"),
    ((indices(4), torch.tensor([1])), ValueError, "offsets: have to begin with 0"),
    ((indices(4), torch.tensor([0, 5])), ValueError, "offsets: "),
    ((indices(4), torch.tensor([0.0])), TypeError, "offsets: needs int32 or int64"),
    ((torch.ones(2, 3),), TypeError, "input: needs int32 or int64"),
    ((torch.tensor([[1, ROWS]]),), IndexError, str(ROWS)),
    ((indices(2, 3), None, torch.ones(2, 2)), ValueError, "per_sample_weights: needs the shape"),
]


@pytest.mark.parametrize(("inputs", "kind", "message"), REFUSED)
def test_inputs_that_are_refused(
    inputs: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        made("int8", mode="sum")(*inputs)


def test_modes_that_are_refused() -> None:
    for mode in ("mean", "max"):
        with pytest.raises(ValueError, match=f"per_sample_weights: mode '{mode}'"):
            made("int8", mode=mode)(indices(2, 3), None, torch.ones(2, 3))
    with pytest.raises(OptionError, match="mode: unknown 'summ'"):
        QuantizedEmbeddingBag(4, 3, mode="summ")


def test_weights_of_samples_get_no_gradient_from_integers() -> None:
    layer = made("int8", mode="sum")
    y = layer(indices(2, 3), None, torch.ones(2, 3, requires_grad=True))
    assert_bits(y.detach(), layer(indices(2, 3)))
    with pytest.raises(NotTrainableError, match="octavo::embedding_bag has no backward"):
        y.sum().backward()


@every(["int8", "float16"])
def test_graphs_over_offsets_and_weights(choice: str) -> None:
    layer = made(choice, mode="sum", include_last_offset=True)
    first = (indices(12), torch.tensor([0, 5, 9, 12]), torch.randn(12))
    second = (indices(9), torch.tensor([0, 4, 4, 4, 9]), torch.randn(9))
    assert_runs_in_graphs(layer, first, second)
