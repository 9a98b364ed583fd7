"""Decoders that run as one call generate the same tokens, and write into caches of their own."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.torch import quantize_dynamic
from octavo.torch.blocks.cache.cache_memory import ROOM
from tests.models import transformer
from tests.torch.blocks.one_call import apart, near, ran

transformers = pytest.importorskip("transformers")

LARGE = {"initializer_range": 0.3}
WINDOW = {**LARGE, "num_key_value_heads": 2, "sliding_window": 5}
GEMMA3 = {**WINDOW, "head_dim": 16, "query_pre_attn_scalar": 16}
GEMMA3 |= {"layer_types": ["sliding_attention", "full_attention"]}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", LARGE),
    "Qwen3": ("Qwen3ForCausalLM", LARGE),
    "Mistral": ("MistralForCausalLM", WINDOW),
    "Gemma3": ("Gemma3ForCausalLM", GEMMA3),
    "GPT2": ("GPT2LMHeadModel", {}),
    "OPT": ("OPTForCausalLM", {"ffn_dim": 96, "word_embed_proj_dim": 48, "init_std": 0.4}),
    "T5": ("T5ForConditionalGeneration", {"initializer_factor": 2.0}),
    "Bart": ("BartForConditionalGeneration", {"init_std": 0.3}),
    "Whisper": (
        "WhisperForConditionalGeneration",
        {"init_std": 0.3, "num_mel_bins": 16, "max_source_positions": 20},
    ),
}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "beams": {"num_beams": 3},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "assisted": {"prompt_lookup_num_tokens": 3},
}


def decoder(name: str = "Llama") -> Any:
    kind, options = DECODERS[name]
    model = transformer(kind, **options)
    settings = model.generation_config
    settings.eos_token_id = settings.forced_eos_token_id = None
    settings.pad_token_id = 0
    return quantize_dynamic(model)


def prompt(name: str, batch: int) -> dict[str, Tensor]:
    if name == "Whisper":
        return {"input_features": torch.randn(batch, 16, 40)}
    ids = torch.randint(3, 99, (batch, 7))
    mask = torch.ones_like(ids)
    if batch > 1:
        mask[0, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}


FEW = {("Llama", "greedy"), ("Llama", "beams"), ("Mistral", "static cache"), ("Bart", "greedy")}
"""One of each kind; all others are slow tests."""
RUNS = [
    pytest.param(name, way, marks=() if (name, way) in FEW else pytest.mark.slow)
    for name in DECODERS
    for way in WAYS
]


@pytest.mark.parametrize(("name", "way"), RUNS)
def test_generation_gives_the_same_tokens(name: str, way: str) -> None:
    quantized = decoder(name)
    given = prompt(name, 1 if way == "assisted" else 2)
    options = {"max_new_tokens": 12, **WAYS[way]}
    found = quantized.generate(**given, **options)
    assert torch.equal(found, apart(quantized).generate(**given, **options))
    assert ran(quantized) >= 2


def test_an_assistant_changes_no_token() -> None:
    """Its drafts are taken or cut off both caches."""
    quantized, assistant, given = decoder(), decoder(), prompt("Llama", 1)
    found = quantized.generate(**given, assistant_model=assistant, max_new_tokens=12)
    assert torch.equal(found, quantized.generate(**given, max_new_tokens=12))
    assert ran(quantized) >= 2 <= ran(assistant)


def steps(model: Any, ids: Tensor, *ends: int) -> tuple[Tensor, Any]:
    """What the model says of the tokens up to each end, the first from 0 on, and its cache."""
    cache, found = transformers.DynamicCache(), ids
    for start, end in zip((0, *ends), ends, strict=False):
        found = model(ids[:, start:end], cache=cache, use_cache=True).logits
    return found, cache


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))],
    ids=["deepcopy", "pickle"],
)
def test_copies_of_a_cache_go_ways_of_their_own(copied: Any) -> None:
    quantized = decoder()
    ids, other = torch.randint(3, 99, (2, 1, 8))
    other[:, :7] = ids[:, :7]
    _, cache = steps(quantized, ids, 6, 7)
    again = copied(cache)
    found = [
        quantized(given[:, 7:], cache=kept, use_cache=True).logits
        for given, kept in ((ids, cache), (other, again))
    ]
    for given, logits in zip((ids, other), found, strict=True):
        near(logits, steps(apart(quantized), given, 6, 7, 8)[0])


def test_layers_that_share_tensors_do_not_write_into_one_another() -> None:
    quantized, ids = decoder(), torch.randint(3, 99, (1, 9))
    _, cache = steps(quantized, ids, 6, 7)
    again = transformers.DynamicCache()
    again.layers = [copy.copy(layer) for layer in cache.layers]
    quantized(ids[:, 7:8], cache=cache, use_cache=True)
    kept = cache.layers[0].keys.clone()
    quantized(ids[:, 8:9], cache=again, use_cache=True)
    assert torch.equal(cache.layers[0].keys, kept)
    assert not torch.equal(again.layers[0].keys, kept)


def test_new_keys_are_written_where_there_is_room() -> None:
    quantized, ids = decoder(), torch.randint(3, 99, (1, 40))
    _, cache = steps(quantized, ids, 6, 7)
    layer = cache.layers[0]
    at, room, before = layer.keys.data_ptr(), layer.__dict__[ROOM], layer.keys
    held = before.clone()
    for i in range(7, 40):
        quantized(ids[:, i : i + 1], cache=cache, use_cache=True)
    assert layer.keys.data_ptr() == at
    assert layer.__dict__[ROOM] is room
    assert layer.keys.shape[2] == 40
    assert torch.equal(before, held)


def test_another_prompt_may_go_on_with_the_encoder_states_of_a_cache() -> None:
    """Of which only the cross attention's part is handed on: it is not written again."""
    quantized, ids = decoder("Bart"), torch.randint(3, 99, (2, 2, 7))
    states = [quantized.get_encoder()(one) for one in ids]

    def second(model: Any) -> Tensor:
        lasting = transformers.DynamicCache()
        for token, given in enumerate(states, 5):
            cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), lasting)
            tokens = torch.full((2, 1), token)
            found = model(decoder_input_ids=tokens, encoder_outputs=given, cache=cache).logits
        assert lasting.layers[0].keys.shape[2] == 7
        return found

    near(second(quantized), second(apart(quantized)), 1e-3)
    assert ran(quantized) >= 2
