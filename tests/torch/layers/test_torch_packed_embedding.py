"""Embeddings over packed weights: in groups, and tied to an output layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.recipe import PRESETS, Recipe, Rule, Scheme
from octavo.torch.layers.embedding import QuantizedEmbedding
from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from tests.torch.behaviour import assert_bits, assert_keeps_its_state, assert_runs_in_graphs, quiet
from tests.torch.layers.test_torch_groups import FORMATS, scheme_of

PLACES = torch.tensor([[0, 7, 499], [31, 16, 15]])


class Decoder(nn.Module):  # type: ignore[misc]
    """An embedding, a layer, and an output layer that may be tied to the first."""

    def __init__(self, tied: bool = True, dim: int = 50) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.inner = nn.Embedding(500, dim), nn.Linear(dim, dim)
        self.head = nn.Linear(dim, 500, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, indices: Tensor) -> Tensor:
        return self.head(self.inner(self.table(indices)))


def quantized(model: nn.Module, recipe: Any) -> Any:
    if isinstance(recipe, Scheme):
        recipe = Recipe("custom", recipe)
    return octavo.torch.quantize_dynamic(model, recipe=recipe)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dim", [20, 64, 100])
def test_rows_are_those_of_the_dequantized_weight(name: str, dim: int) -> None:
    model = quantized(Decoder(dim=dim), scheme_of(name))
    assert type(model.table) is QuantizedPackedEmbedding
    assert_bits(model.table(PLACES), model.head.weight()[PLACES])
    assert_bits(model.table(PLACES.int()), model.table(PLACES))
    assert_bits(model.table.weight(), model.head.weight())
    assert_bits(model.table.integers(), model.head.integers())


RECIPES = {
    "int4": "int4",
    "int8": "int8",
    "affine": "int8-accurate",
    "int8 in groups": scheme_of("int8-64-affine"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_a_tied_weight_is_stored_once(case: str, tmp_path: Any) -> None:
    model = quantized(Decoder(), RECIPES[case])
    for key, tensor in model.table._buffers.items():
        other = model.head._buffers[key]
        assert (other is None) == (tensor is None)
        assert tensor is None or tensor.data_ptr() == other.data_ptr()
    assert_bits(model.table(PLACES), model.head.weight()[PLACES])
    file = tmp_path / "m.safetensors"
    octavo.torch.save(model, file)
    again = octavo.torch.load(file, Decoder)
    assert again.table.packed.data_ptr() == again.head.packed.data_ptr()
    assert_bits(again(PLACES), model(PLACES))
    counted = [o.bytes_after for o in octavo.torch.report(model).layers]
    assert counted[0] > 0
    assert counted[2] == 0


def test_a_tied_weight_that_is_held_otherwise_is_stored_twice() -> None:
    rule = Rule(Scheme(), name="head")
    model = quantized(Decoder(), PRESETS["int4"].with_rules_first(rule))
    assert model.table.format == "int4-32"
    assert model.head.format == "int8"
    alone = quantized(
        Decoder(), Recipe("one", Scheme(), (Rule(scheme_of("int4-32"), name="head"),))
    )
    assert type(alone.table) is QuantizedEmbedding


def test_an_untied_table_of_int8_lies_row_by_row() -> None:
    assert type(quantized(Decoder(tied=False), "int8").table) is QuantizedEmbedding
    assert type(quantized(Decoder(tied=False), "int4").table) is QuantizedPackedEmbedding


def test_a_table_keeps_its_state_and_runs_in_graphs() -> None:
    table = quantized(Decoder(), "int4").table
    assert_keeps_its_state(table, PLACES)
    assert_runs_in_graphs(table, (PLACES,), (PLACES[:1].repeat(5, 1),))
    assert_bits(quiet(torch.jit.script)(table)(PLACES), table(PLACES))
    assert repr(table) == "QuantizedPackedEmbedding(500, 50, int4-32, packed)"


@pytest.mark.parametrize("recipe", ["int4", "int8"])
def test_a_table_has_the_dtype_of_the_float_one(recipe: str) -> None:
    model = quantized(Decoder().to(torch.bfloat16), recipe)
    assert model.table(PLACES).dtype is torch.bfloat16
    assert model.table.weight.dtype is torch.bfloat16
    assert model(PLACES).dtype is torch.bfloat16


@pytest.mark.parametrize("index", [500, -1])
def test_an_index_outside_is_named(index: int) -> None:
    table = quantized(Decoder(), "int4").table
    with pytest.raises(IndexError, match=f"position 1 holds {index}, and the table has 500 rows"):
        table(torch.tensor([3, index]))


def test_a_bag_has_rows_and_says_so() -> None:
    torch.manual_seed(0)
    model = quantized(nn.Sequential(nn.EmbeddingBag(500, 32)), "int4")
    (outcome,) = octavo.torch.report(model).layers
    assert outcome.scheme == "int8 per channel, weights only"
    assert outcome.notes == ("a scale for each row, not for each block of 32; int8, not int4",)
    model(PLACES)
