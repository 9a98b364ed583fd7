"""QuantizedEmbeddingBag: sums, means and maxima of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import octavo.torch
from octavo.errors import NotTrainableError, OptionError
from octavo.recipe import Scheme
from octavo.torch.layers.embedding_bag import QuantizedEmbeddingBag
from octavo.torch.weight_choice import WeightChoice
from tests.torch.behaviour import (
    FLOATS,
    assert_bits,
    assert_close,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
)
from tests.torch.tables import CHOICES, every_choice, stated

ROWS, DIM = 50, 19
MODES = ("sum", "mean", "max")
every_mode = pytest.mark.parametrize("mode", MODES)


def made(choice: WeightChoice, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return QuantizedEmbeddingBag.from_float(
        nn.EmbeddingBag(ROWS, DIM, dtype=dtype, **kwargs), choice
    )


def indices(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(0, ROWS, shape)


def expected(layer: Any, *inputs: Any) -> Tensor:
    """What torch's layer makes of the rows that the buffers say, in float64."""
    given, offsets, weights = (*inputs, None, None)[:3]
    return functional.embedding_bag(
        given,
        stated(layer).double(),
        offsets,
        mode=layer.mode,
        per_sample_weights=None if weights is None else weights.double(),
        include_last_offset=layer.include_last_offset,
        padding_idx=layer.padding_idx,
    ).float()


# --- the numbers ---


@every_choice
@every_mode
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("padding", [None, 7], ids=["no padding", "padding"])
def test_bags_of_one_length(
    choice: WeightChoice, mode: str, kind: torch.dtype, padding: int | None
) -> None:
    layer = made(choice, mode=mode, padding_idx=padding)
    i = indices(6, 5).to(kind)
    i[2, 1:4] = 7
    i[4] = 7
    assert_close(layer(i), expected(layer, i), 1e-6)
    assert layer(i)[4].eq(0).all() == (padding is not None)


@every_choice
@every_mode
@pytest.mark.parametrize("last", [False, True], ids=["begins", "last end too"])
@pytest.mark.parametrize("padding", [None, 7], ids=["no padding", "padding"])
def test_bags_by_offsets(choice: WeightChoice, mode: str, last: bool, padding: int | None) -> None:
    layer = made(choice, mode=mode, include_last_offset=last, padding_idx=padding)
    i = indices(20)
    i[3:6] = 7
    offsets = torch.tensor([0, 3, 6, 6, 15] + [20] * last)
    y = layer(i, offsets)
    assert y.shape == (5, DIM)
    assert y[2].eq(0).all()
    assert_close(y, expected(layer, i, offsets), 1e-6)
    assert_bits(layer(i.int(), offsets.int()), y)
    assert_bits(layer(i, offsets.int()), y)


@every_choice
def test_the_last_offset_does_not_count_for_bags_of_one_length(choice: WeightChoice) -> None:
    i = indices(3, 4)
    assert_bits(made(choice, include_last_offset=True)(i), made(choice)(i))


@every_choice
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_weights_of_samples(choice: WeightChoice, dtype: torch.dtype) -> None:
    layer = made(choice, dtype, mode="sum")
    i = indices(4, 6)
    weights = torch.randn(4, 6).to(dtype)
    y = layer(i, per_sample_weights=weights)
    assert y.dtype == dtype
    want = expected(layer, i, None, weights)
    error = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-6)
    assert_close(y, want.to(dtype), error)
    flat = layer(i.reshape(-1), torch.arange(0, 24, 6), weights.reshape(-1))
    assert_close(flat, y, 1e-6)
    strided = layer(i.t(), per_sample_weights=weights.t())
    assert_close(strided, expected(layer, i.t(), None, weights.t()).to(dtype), error)


@every_choice
@every_mode
def test_nothing_at_all(choice: WeightChoice, mode: str) -> None:
    layer = made(choice, mode=mode)
    assert layer(indices(0, 4)).shape == (0, DIM)
    assert_bits(layer(indices(3, 0)), torch.zeros(3, DIM))
    assert_bits(layer(indices(0), torch.zeros(2, dtype=torch.int64)), torch.zeros(2, DIM))
    assert layer(indices(0), indices(0)).shape == (0, DIM)


@every_choice
def test_nested_bags(choice: WeightChoice) -> None:
    layer = made(choice, mode="sum")
    parts = [indices(n) for n in (3, 0, 5)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    y = layer(torch.cat(parts), torch.tensor([0, 3, 3]))
    assert_bits(layer(nested), y)


# --- errors ---


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ((indices(4),), ValueError, "offsets: are needed"),
        ((indices(2, 3), torch.tensor([0])), ValueError, "offsets: need to be None"),
        ((indices(2, 3, 4),), ValueError, r"input: needs shape .*not \(2, 3, 4\)"),
        ((indices(4), torch.tensor([[0]])), ValueError, r"offsets: need one axis.*\(1, 1\)"),
        ((indices(4), torch.tensor([1])), ValueError, "offsets: have to begin with 0"),
        ((indices(4), torch.tensor([0, 5])), ValueError, "offsets: have to begin with 0"),
        ((indices(4), torch.tensor([0.0])), TypeError, "offsets: needs int32 or int64"),
        ((torch.ones(2, 3),), TypeError, "input: needs int32 or int64, not float32"),
        ((torch.tensor([[1, ROWS]]),), IndexError, str(ROWS)),
        (
            (indices(2, 3), None, torch.ones(2, 2)),
            ValueError,
            r"per_sample_weights: needs the shape of input, \(2, 3\), not \(2, 2\)",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_inputs_that_are_refused(
    inputs: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        made(CHOICES["int8"], mode="sum")(*inputs)


@pytest.mark.parametrize("mode", ["mean", "max"])
def test_only_sums_have_weights(mode: str) -> None:
    with pytest.raises(ValueError, match=f"per_sample_weights: mode '{mode}' has none"):
        made(CHOICES["int8"], mode=mode)(indices(2, 3), None, torch.ones(2, 3))


def test_an_unknown_mode() -> None:
    with pytest.raises(OptionError, match="mode: unknown 'summ'"):
        QuantizedEmbeddingBag(4, 3, mode="summ")


def test_max_norm_stays_float_with_a_reason() -> None:
    model = nn.ModuleList([nn.EmbeddingBag(ROWS, DIM, max_norm=1.5)])
    quantized = octavo.torch.quantize_dynamic(model, {nn.EmbeddingBag: Scheme()})
    (outcome,) = octavo.torch.report(quantized).layers
    assert type(quantized[0]) is nn.EmbeddingBag
    assert "max_norm=1.5" in outcome.reason


def test_weights_of_samples_get_no_gradient_from_integers() -> None:
    layer = made(CHOICES["int8"], mode="sum")
    weights = torch.ones(2, 3, requires_grad=True)
    y = layer(indices(2, 3), None, weights)
    assert_bits(y.detach(), layer(indices(2, 3)))
    with pytest.raises(NotTrainableError, match="octavo::embedding_bag has no backward"):
        y.sum().backward()


# --- surroundings ---


@every_choice
@every_mode
def test_state_and_threads(choice: WeightChoice, mode: str) -> None:
    layer = made(choice, mode=mode, padding_idx=3)
    assert_keeps_its_state(layer, indices(3, 4))
    assert_threads_do_not_matter(layer, indices(200, 300))


@every_choice
def test_graphs_over_bags_of_one_length(choice: WeightChoice) -> None:
    layer = made(choice, padding_idx=3)
    assert_runs_in_graphs(layer, (indices(3, 4),), (indices(7, 4),))


@every_choice
def test_graphs_over_offsets_and_weights(choice: WeightChoice) -> None:
    layer = made(choice, mode="sum", include_last_offset=True)
    first = (indices(12), torch.tensor([0, 5, 9, 12]), torch.randn(12))
    second = (indices(9), torch.tensor([0, 4, 4, 4, 9]), torch.randn(9))
    assert_runs_in_graphs(layer, first, second)


def test_it_prints_what_it_is() -> None:
    layer = made(CHOICES["int8"], mode="max", include_last_offset=True, padding_idx=1)
    assert repr(layer) == (
        "QuantizedEmbeddingBag(50, 19, padding_idx=1, mode='max', include_last_offset=True, int8)"
    )
