"""Saving and loading models of transformers, from their configurations alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.torch import load, quantize_dynamic, save
from octavo.torch.files.tensors import module_names, tensors_of
from tests.models import assert_bits, transformer
from tests.torch.blocks.one_call import OwnForwards

IDS = torch.tensor([[5, 9, 2, 40, 7], [1, 3, 3, 8, 0]])


def saved(name: str, tmp_path: Path, **options: Any) -> tuple[Any, Any]:
    """A quantized model, and itself loaded."""
    tied = {"tie_word_embeddings": True} if name.startswith("Llama") else {}
    model = quantize_dynamic(transformer(name, **tied), **options)
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors", lambda: transformer(name, **tied))
    for item in tensors_of(module_names(loaded).modules):
        assert not item.tensor.is_meta, item.name
    return model, loaded


def test_bert_and_its_position_ids(tmp_path: Path) -> None:
    model, loaded = saved("BertModel", tmp_path)
    assert_bits(loaded.embeddings.position_ids, model.embeddings.position_ids)
    with torch.inference_mode():
        assert_bits(loaded(IDS).last_hidden_state, model(IDS).last_hidden_state)


@pytest.mark.parametrize("options", [{}, {"recipe": "int8"}], ids=["default", "embeddings too"])
def test_llama_its_frequencies_and_its_tied_embedding(
    options: dict[str, Any], tmp_path: Path
) -> None:
    model, loaded = saved("LlamaForCausalLM", tmp_path, **options)
    assert_bits(loaded.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
    assert_bits(loaded.model.rotary_emb.original_inv_freq, model.model.rotary_emb.original_inv_freq)
    with torch.inference_mode():
        assert_bits(loaded(IDS).logits, model(IDS).logits)


def test_t5_of_encoder_and_decoder(tmp_path: Path) -> None:
    model, loaded = saved("T5ForConditionalGeneration", tmp_path)
    with OwnForwards():
        assert_bits(*(of(IDS, decoder_input_ids=IDS).logits for of in (loaded, model)))


def test_gpt2_generates(tmp_path: Path) -> None:
    model, loaded = saved("GPT2LMHeadModel", tmp_path)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with torch.inference_mode():
        expected, found = (
            of.generate(IDS, attention_mask=torch.ones_like(IDS), **options)
            for of in (model, loaded)
        )
    assert found.shape[1] > 1
    assert torch.equal(found, expected)
