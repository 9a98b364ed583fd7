"""QuantizedEmbedding: rows out of a table of integers or 16-bit floats."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.core.layer import SMALL_TABLE
from octavo.errors import ModelError
from octavo.recipe import Scheme
from octavo.torch.layers.embedding import QuantizedEmbedding
from octavo.torch.qconfig import float_qparams_weight_only_qconfig
from octavo.torch.qconfig.observed import observe_weight
from octavo.torch.weight_choice import SchemeChoice, WeightChoice
from tests.torch.behaviour import (
    FLOATS,
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    in_another_process,
)
from tests.torch.tables import CHOICES, every_choice, stated

ROWS, DIM = 50, 19


def float_layer(dtype: torch.dtype = torch.float32, **kwargs: Any) -> nn.Embedding:
    torch.manual_seed(0)
    return nn.Embedding(ROWS, DIM, dtype=dtype, **kwargs)


def indices(*shape: int, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return torch.randint(0, ROWS, shape)


# --- the numbers ---


@every_choice
@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 1, 3, 2), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_rows_are_what_the_buffers_say(
    choice: WeightChoice, shape: tuple[int, ...], kind: torch.dtype
) -> None:
    layer = QuantizedEmbedding.from_float(float_layer(), choice)
    i = indices(*shape)
    y = layer(i.to(kind))
    assert y.shape == (*shape, DIM)
    assert_bits(y, stated(layer)[i])


@every_choice
def test_rows_are_within_half_a_step_of_the_float_ones(choice: WeightChoice) -> None:
    float_one = float_layer()
    layer = QuantizedEmbedding.from_float(float_one, choice)
    w = float_one.weight.detach()
    if layer.scale is None:
        step = w.abs() * 2.0 ** (-7 if choice.storage == "bfloat16" else -10)
    else:
        step = layer.scale[:, None]
    assert ((layer(torch.arange(ROWS)) - w).abs() <= 0.501 * step + 1e-7).all()


def test_float_zero_points_are_kept_to_the_bit() -> None:
    float_one = float_layer()
    layer = QuantizedEmbedding.from_float(float_one, CHOICES["float qparams"])
    said = observe_weight(float_qparams_weight_only_qconfig, float_one.weight, "e")
    q = torch.from_numpy(said.q)
    scale, zero = torch.from_numpy(said.scale), torch.from_numpy(said.zero_point)
    assert zero.dtype == torch.float32
    assert (zero != zero.round()).any()
    assert torch.equal(layer.table, q)
    every = (q.float() - zero[:, None]) * scale[:, None]
    assert_bits(layer(torch.arange(ROWS)), every)


def test_storages_are_what_was_asked_for() -> None:
    found = {
        key: (layer.table.dtype, None if layer.zero_point is None else layer.zero_point.dtype)
        for key, choice in CHOICES.items()
        for layer in [QuantizedEmbedding.from_float(float_layer(), choice)]
    }
    assert found == {
        "int8": (torch.int8, None),
        "int8 affine": (torch.int8, torch.int32),
        "uint8": (torch.uint8, torch.int32),
        "uint8 affine": (torch.uint8, torch.int32),
        "uint8 per tensor": (torch.uint8, torch.int32),
        "float qparams": (torch.uint8, torch.float32),
        "qconfig per tensor": (torch.int8, None),
        "float16": (torch.float16, None),
        "bfloat16": (torch.bfloat16, None),
    }


@every_choice
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_outputs_have_the_dtype_of_the_float_table(
    choice: WeightChoice, dtype: torch.dtype
) -> None:
    layer = QuantizedEmbedding.from_float(float_layer(dtype), choice)
    i = indices(3, 4)
    assert_bits(layer(i), stated(layer)[i].to(dtype))
    assert layer.weight.dtype == dtype
    assert_bits(layer.weight(), stated(layer).to(dtype))


@every_choice
def test_strided_indices(choice: WeightChoice) -> None:
    layer = QuantizedEmbedding.from_float(float_layer(), choice)
    i = indices(4, 6)
    assert_bits(layer(i.t()), layer(i).transpose(0, 1))
    assert_bits(layer(i[:, ::2]), layer(i)[:, ::2])


@every_choice
def test_the_padding_row_is_a_row_of_zeros(choice: WeightChoice) -> None:
    layer = QuantizedEmbedding.from_float(float_layer(padding_idx=-3), choice)
    assert layer.padding_idx == ROWS - 3
    assert layer(torch.tensor(ROWS - 3)).eq(0).all()


@every_choice
def test_empty_tables(choice: WeightChoice) -> None:
    layer = QuantizedEmbedding.from_float(nn.Embedding(4, 0), choice)
    assert layer(torch.tensor([[1, 2]])).shape == (1, 2, 0)


# --- errors ---


@every_choice
@pytest.mark.parametrize("bad", [ROWS, -1])
def test_indices_that_the_table_does_not_have(choice: WeightChoice, bad: int) -> None:
    layer = QuantizedEmbedding.from_float(float_layer(), choice)
    with pytest.raises(IndexError):
        layer(torch.tensor([3, bad]))


@pytest.mark.parametrize("key", ["uint8 affine", "float qparams", "float16"])
def test_the_error_names_position_and_index(key: str) -> None:
    layer = QuantizedEmbedding.from_float(float_layer(), CHOICES[key])
    with pytest.raises(IndexError) as caught:
        layer(torch.tensor([3, 7 * ROWS]))
    assert {"indices", "1", f"{7 * ROWS}"} <= set(re.findall(r"\w+", str(caught.value)))
    with pytest.raises(TypeError, match="input: needs int32 or int64, not float32"):
        layer(torch.ones(3))


@pytest.mark.parametrize("key", ["int8", "float16"])
def test_tables_that_are_not_finite(key: str) -> None:
    float_one = float_layer()
    with torch.no_grad():
        float_one.weight[3, 4] = torch.inf
    with pytest.raises(ValueError, match=r"emb: weight: .*NaN"):
        QuantizedEmbedding.from_float(float_one, CHOICES[key], name="emb")


def test_values_beyond_float16() -> None:
    float_one = float_layer()
    with torch.no_grad():
        float_one.weight[3, 4] = 70000
    with pytest.raises(ValueError, match=r"emb: .*beyond float16, the first 70000.0 at \[3, 4\]"):
        QuantizedEmbedding.from_float(float_one, CHOICES["float16"], name="emb")
    layer = QuantizedEmbedding.from_float(float_one, CHOICES["bfloat16"])
    assert layer(torch.tensor(3))[4] == 70144


def test_an_empty_layer_says_that_it_is_empty() -> None:
    with torch.device("meta"):
        layer = QuantizedEmbedding(ROWS, DIM)
    with pytest.raises(ModelError, match="holds no weights yet"):
        layer(indices(2))


# --- surroundings ---


@every_choice
def test_surroundings(choice: WeightChoice) -> None:
    layer = QuantizedEmbedding.from_float(float_layer(), choice)
    assert_keeps_its_state(layer, indices(3, 4))
    assert_runs_in_graphs(layer, (indices(3, 4),), (indices(7, 4),))
    assert_threads_do_not_matter(layer, indices(64, 512))


@pytest.mark.parametrize("key", ["uint8 affine", "float qparams"])
def test_a_half_model_compiles_in_grad_mode(key: str) -> None:
    torch._dynamo.reset()
    embedding = QuantizedEmbedding.from_float(float_layer(torch.bfloat16), CHOICES[key])
    model = nn.Sequential(embedding, nn.Linear(DIM, 3, dtype=torch.bfloat16))
    y = torch.compile(model, fullgraph=True, backend="aot_eager")(indices(2, 3))
    assert_bits(y.detach(), model(indices(2, 3)).detach())
    y.sum().backward()  # the float layer behind the table trains
    assert model[1].weight.grad is not None


def test_another_process() -> None:
    layers = [QuantizedEmbedding.from_float(float_layer(), choice) for choice in CHOICES.values()]
    i = indices(3, 4)
    found = in_another_process(layers, [i] * len(layers))  # type: ignore[arg-type]
    for layer, y in zip(layers, found, strict=True):
        assert_bits(y, layer(i))


# --- in models ---


def model_with(*layers: nn.Module) -> nn.Module:
    return nn.ModuleList(layers)


def test_quint8_takes_embeddings_alone() -> None:
    model = model_with(float_layer(), nn.EmbeddingBag(5, 4), nn.Linear(3, 3))
    quantized = octavo.torch.quantize_dynamic(model, dtype=torch.quint8)
    outcomes = octavo.torch.report(quantized).layers
    assert [o.scheme for o in outcomes] == [
        "uint8 per channel, affine, weights only",
        "uint8 per channel, affine, weights only",
        "float",
    ]
    assert outcomes[0].bytes_after == ROWS * (DIM + 8)
    assert outcomes[0].sqnr_db is not None
    assert outcomes[0].sqnr_db > 40


def test_a_scheme_with_activations_has_none_here() -> None:
    model = model_with(float_layer())
    quantized = octavo.torch.quantize_dynamic(model, {nn.Embedding: Scheme()})
    (outcome,) = octavo.torch.report(quantized).layers
    assert outcome.scheme == "int8 per channel, weights only"
    assert outcome.notes == ()


def test_a_qconfig_for_embeddings_says_weights_only() -> None:
    model = model_with(float_layer())
    spec = {nn.Embedding: float_qparams_weight_only_qconfig}
    quantized = octavo.torch.quantize_dynamic(model, spec)
    (outcome,) = octavo.torch.report(quantized).layers
    assert outcome.scheme == "uint8 per channel, float zero points, weights only"


def test_blocks_are_held_as_such() -> None:
    quantized = octavo.torch.quantize_dynamic(
        model_with(nn.Embedding(300, 16)), recipe="int8-block"
    )
    (outcome,) = octavo.torch.report(quantized).layers
    assert (outcome.scheme, outcome.notes) == ("int8 per block of 32, weights only", ())


def test_a_recipe_leaves_small_tables_float() -> None:
    rows = SMALL_TABLE // 4 // DIM
    model = model_with(
        nn.Embedding(rows, DIM), nn.EmbeddingBag(rows, DIM), nn.Embedding(rows + 1, DIM)
    )
    for recipe in ("int8", "int8-accurate"):
        *small, large = octavo.torch.report(
            octavo.torch.quantize_dynamic(model, recipe=recipe)
        ).layers
        assert large.quantized
        assert [(o.quantized, "nothing to win" in o.reason) for o in small] == [(False, True)] * 2
    # Who names their types in qconfig_spec, or takes one scale for a table, gets them.
    for asked in ({"qconfig_spec": {nn.Embedding, nn.EmbeddingBag}}, {"recipe": "int8-per-tensor"}):
        told = octavo.torch.report(octavo.torch.quantize_dynamic(model, **asked))
        assert all(o.quantized for o in told.layers)


def test_max_norm_stays_float_with_a_reason() -> None:
    model = model_with(float_layer(max_norm=2.0))
    quantized = octavo.torch.quantize_dynamic(model, {nn.Embedding: Scheme()})
    (outcome,) = octavo.torch.report(quantized).layers
    assert type(quantized[0]) is nn.Embedding
    assert "max_norm=2.0" in outcome.reason


@pytest.mark.parametrize("key", ["int8", "float16"])
def test_two_layers_of_one_weight_share_one_table(key: str) -> None:
    first, second = float_layer(), float_layer()
    second.weight = first.weight
    choice = CHOICES[key]
    assert isinstance(choice, SchemeChoice)
    quantized = octavo.torch.quantize_dynamic(
        model_with(first, second), {nn.Embedding: choice.scheme}
    )
    a, b = quantized
    assert a.table.data_ptr() == b.table.data_ptr()
    first_one, second_one = octavo.torch.report(quantized).layers
    assert first_one.sqnr_db == second_one.sqnr_db
    assert first_one.sqnr_db is not None
    assert second_one.bytes_after == 0


def test_a_table_tied_to_a_head() -> None:
    head = nn.Linear(DIM, ROWS, bias=False)
    table = float_layer()
    head.weight = table.weight
    model = nn.Sequential(table, head)
    before = copy.deepcopy(model)
    quantized = octavo.torch.quantize_dynamic(model, {nn.Embedding: Scheme(), nn.Linear: Scheme()})
    y = before(indices(4))
    assert (quantized(indices(4)) - y).norm() <= 0.02 * y.norm()


def test_it_prints_what_it_is() -> None:
    layer = QuantizedEmbedding.from_float(float_layer(padding_idx=0), CHOICES["uint8 affine"])
    assert repr(layer) == "QuantizedEmbedding(50, 19, padding_idx=0, uint8, int32 zero points)"
