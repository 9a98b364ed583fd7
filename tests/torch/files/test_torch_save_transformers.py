"""Saving and loading models of transformers, from their configurations alone."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.torch import load, quantize_dynamic, save
from octavo.torch.model_tensors import module_names, tensors_of
from tests.models import assert_bits, transformer
from tests.torch.blocks.one_call import OwnForwards

IDS = torch.tensor([[5, 9, 2, 40, 7], [1, 3, 3, 8, 0]])
ROTARY = ["model.rotary_emb.inv_freq", "model.rotary_emb.original_inv_freq"]
TIED: dict[str, Any] = {"tie_word_embeddings": True}


@pytest.mark.parametrize(
    ("name", "options", "computed", "recipe"),
    [
        ("BertModel", {}, ["embeddings.position_ids"], None),
        ("LlamaForCausalLM", TIED, ROTARY, None),
        ("LlamaForCausalLM", TIED, ROTARY, "int8"),  # its embedding too
        ("T5ForConditionalGeneration", {}, [], None),
    ],
)
def test_what_no_file_holds_is_computed_from_the_configuration(
    name: str, options: dict[str, Any], computed: list[str], recipe: str | None, tmp_path: Path
) -> None:
    model: Any = quantize_dynamic(transformer(name, **options), recipe=recipe)
    save(model, tmp_path / "m.safetensors")
    loaded: Any = load(tmp_path / "m.safetensors", lambda: transformer(name, **options))
    for item in tensors_of(module_names(loaded).modules):
        assert not item.tensor.is_meta, item.name
    for tensor in map(attrgetter, computed):
        assert_bits(tensor(loaded), tensor(model))
    given = {"decoder_input_ids": IDS} if name.startswith("T5") else {}
    with torch.inference_mode(), OwnForwards():
        assert_bits(loaded(IDS, **given)[0], model(IDS, **given)[0])
