"""Saving and loading models of transformers, from their configurations alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from octavo.recipe import Scheme
from octavo.torch import load, quantize_dynamic, save
from octavo.torch.files.tensors import module_names, tensors_of
from tests.torch.behaviour import assert_bits

IDS = torch.tensor([[5, 9, 2, 40, 7], [1, 3, 3, 8, 0]])


def bert() -> Any:
    return transformers.BertModel(
        transformers.BertConfig(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
        )
    )


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=60, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=59
    )
    return transformers.AutoModelForCausalLM.from_config(config)


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=60,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def saved(factory: Callable[[], Any], tmp_path: Path, **options: Any) -> tuple[Any, Any]:
    """A quantized model, and itself loaded."""
    torch.manual_seed(0)
    model = quantize_dynamic(factory(), **options)
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors", factory)
    for item in tensors_of(module_names(loaded).modules):
        assert not item.tensor.is_meta, item.name
    return model, loaded


def test_bert_and_its_position_ids(tmp_path: Path) -> None:
    model, loaded = saved(bert, tmp_path)
    assert_bits(loaded.embeddings.position_ids, model.embeddings.position_ids)
    with torch.inference_mode():
        assert_bits(loaded(IDS).last_hidden_state, model(IDS).last_hidden_state)


@pytest.mark.parametrize("options", [{}, {"recipe": "int8"}], ids=["default", "embeddings too"])
def test_llama_its_frequencies_and_its_tied_embedding(
    options: dict[str, Any], tmp_path: Path
) -> None:
    model, loaded = saved(llama, tmp_path, **options)
    assert_bits(loaded.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
    assert_bits(loaded.model.rotary_emb.original_inv_freq, model.model.rotary_emb.original_inv_freq)
    with torch.inference_mode():
        assert_bits(loaded(IDS).logits, model(IDS).logits)


def test_a_tied_head_that_stays_float_stays_tied(tmp_path: Path) -> None:
    _, loaded = saved(llama, tmp_path, qconfig_spec={"model.layers.1.mlp.up_proj": Scheme()})
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


@pytest.mark.parametrize("factory", [gpt2, t5])
def test_generate(factory: Callable[[], Any], tmp_path: Path) -> None:
    model, loaded = saved(factory, tmp_path)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    mask = torch.ones_like(IDS)
    with torch.inference_mode():
        expected = model.generate(IDS, attention_mask=mask, **options)
        found = loaded.generate(IDS, attention_mask=mask, **options)
    assert found.shape[1] > 1
    assert torch.equal(found, expected)
