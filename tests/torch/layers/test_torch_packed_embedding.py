"""Embeddings over packed weights: in groups, and tied to an output layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from octavo.recipe import PRESETS, Recipe, Rule, Scheme
from octavo.torch import load, quantize_dynamic, report, save
from octavo.torch.layers.embedding import QuantizedEmbedding
from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from tests.models import Tied, assert_bits, quiet
from tests.torch.behaviour import assert_keeps_its_state, assert_runs_in_graphs
from tests.torch.layers.cases import FORMATS, scheme_of

PLACES = torch.tensor([[0, 7, 499], [31, 16, 15]])


def decoder(tied: bool = True, width: int = 50) -> Tied:
    return Tied(500, width, tied)


def quantized(model: nn.Module, recipe: Any) -> Any:
    if isinstance(recipe, Scheme):
        recipe = Recipe("custom", recipe)
    return quantize_dynamic(model, recipe=recipe)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dim", [20, 64, 100])
def test_rows_are_those_of_the_dequantized_weight(name: str, dim: int) -> None:
    model = quantized(decoder(width=dim), scheme_of(name))
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
def test_a_tied_weight_is_stored_once(case: str, tmp_path: Path) -> None:
    model = quantized(decoder(), RECIPES[case])
    for key, tensor in model.table._buffers.items():
        other = model.head._buffers[key]
        assert (other is None) == (tensor is None)
        assert tensor is None or tensor.data_ptr() == other.data_ptr()
    assert_bits(model.table(PLACES), model.head.weight()[PLACES])
    save(model, tmp_path / "m.safetensors")
    again: Any = load(tmp_path / "m.safetensors", decoder)
    assert again.table.packed.data_ptr() == again.head.packed.data_ptr()
    assert_bits(again(PLACES), model(PLACES))
    counted = [o.bytes_after for o in report(model).layers]
    assert counted[0] > 0
    assert counted[2] == 0


def test_a_tied_weight_that_is_held_otherwise_is_stored_twice() -> None:
    rule = Rule(Scheme(), name="head")
    model = quantized(decoder(), PRESETS["int4"].with_rules_first(rule))
    assert model.table.format == "int4-32"
    assert model.head.format == "int8"
    rules = (Rule(scheme_of("int4-32"), name="head"),)
    alone = quantized(decoder(), Recipe("one", Scheme(), rules))
    assert type(alone.table) is QuantizedEmbedding


def test_an_untied_table_of_int8_lies_row_by_row() -> None:
    assert type(quantized(decoder(tied=False), "int8").table) is QuantizedEmbedding
    assert type(quantized(decoder(tied=False), "int4").table) is QuantizedPackedEmbedding


def test_a_table_keeps_its_state_and_runs_in_graphs() -> None:
    table = quantized(decoder(), "int4").table
    assert_keeps_its_state(table, PLACES)
    assert_runs_in_graphs(table, (PLACES,), (PLACES[:1].repeat(5, 1),))
    assert_bits(quiet(torch.jit.script)(table)(PLACES), table(PLACES))
    assert repr(table) == "QuantizedPackedEmbedding(500, 50, int4-32, packed)"
    for index in (500, -1):
        with pytest.raises(IndexError, match=f"position 1 holds {index}, .* 500 rows"):
            table(torch.tensor([3, index]))


@pytest.mark.parametrize("recipe", ["int4", "int8"])
def test_a_table_has_the_dtype_of_the_float_one(recipe: str) -> None:
    model = quantized(decoder().to(torch.bfloat16), recipe)
    for found in (model.table(PLACES), model.table.weight, model(PLACES)):
        assert found.dtype is torch.bfloat16


def test_a_bag_has_rows_and_says_so() -> None:
    model = quantized(nn.Sequential(nn.EmbeddingBag(500, 32)), "int4")
    (outcome,) = report(model).layers
    assert outcome.scheme == "int8 per channel, weights only"
    assert outcome.notes == ("a scale for each row, not for each block of 32; int8, not int4",)
    model(PLACES)
