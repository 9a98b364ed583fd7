"""Decoders that run as one call keep their caches as the caches' own updates would."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic
from octavo.torch.blocks.room import ROOM
from tests.torch.blocks.test_torch_block_families import (
    ENDS,
    GROUPED,
    SEQ2SEQ,
    T5,
    TEXT,
    WIDTH,
    apart,
    made,
    ran,
)

transformers = pytest.importorskip("transformers")

WHISPER = {**SEQ2SEQ, **ENDS, "num_mel_bins": 16, "max_source_positions": 20}
GEMMA3 = {**GROUPED, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5}
GEMMA3 |= {"layer_types": ["sliding_attention", "full_attention"]}
OPT = {"ffn_dim": 128, "word_embed_proj_dim": WIDTH, "init_std": 0.4}
OPT |= {key: value for key, value in TEXT.items() if key not in ("intermediate_size",)}

DECODERS: dict[str, Callable[[], nn.Module]] = {
    "Llama": lambda: made("Llama", GROUPED, "ForCausalLM"),
    "Qwen3": lambda: made("Qwen3", {**GROUPED, "head_dim": 16}, "ForCausalLM"),
    "Mistral": lambda: made("Mistral", {**GROUPED, "sliding_window": 5}, "ForCausalLM"),
    "Gemma3": lambda: transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(**GEMMA3)
    ).eval(),
    "GPT2": lambda: made(
        "GPT2", {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "vocab_size": 99}, "LMHeadModel"
    ),
    "OPT": lambda: made("OPT", OPT, "ForCausalLM"),
    "T5": lambda: made(
        "T5",
        {**T5, "decoder_start_token_id": 0, "initializer_factor": 2.0},
        "ForConditionalGeneration",
    ),
    "Bart": lambda: made("Bart", SEQ2SEQ, "ForConditionalGeneration"),
    "Whisper": lambda: made(
        "Whisper", {**WHISPER, "decoder_start_token_id": 1}, "ForConditionalGeneration"
    ),
}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "beams": {"num_beams": 3},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "assisted": {"prompt_lookup_num_tokens": 3},
}


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def decoder(name: str = "Llama") -> Any:
    model: Any = DECODERS[name]()
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


def step(model: Any, ids: Tensor, cache: Any) -> Tensor:
    found: Tensor = model(ids, cache=cache, use_cache=True).logits
    return found


def near(found: Tensor, exact: Tensor) -> None:
    assert (found - exact).norm() <= 0.02 * exact.norm()


def caches_are_alike(one: Any, other: Any) -> None:
    for found, exact in zip(one.layers, other.layers, strict=True):
        assert found.keys.shape == exact.keys.shape
        near(found.keys, exact.keys)
        near(found.values, exact.values)


CHANGES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda cache: None,
    "cropped": lambda cache: cache.crop(-3),
    "reordered": lambda cache: cache.reorder_cache(torch.tensor([1, 1])),
    "selected": lambda cache: cache.batch_select_indices(torch.tensor([1, 0])),
    "written to": lambda cache: cache.layers[0].keys.mul_(2),
    "replaced": lambda cache: setattr(cache.layers[0], "keys", cache.layers[0].keys.clone() * 2),
    "reset": lambda cache: cache.reset(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_cache_that_is_changed_between_steps_is_seen(change: str) -> None:
    quantized = decoder()
    own = apart(quantized)
    ids = torch.randint(3, 99, (2, 12))
    found, exact = transformers.DynamicCache(), transformers.DynamicCache()
    for model, cache in ((quantized, found), (own, exact)):
        for at in (slice(0, 6), slice(6, 7), slice(7, 8)):
            step(model, ids[:, at], cache)
        CHANGES[change](cache)
    for at in (slice(8, 9), slice(9, 12)):
        near(step(quantized, ids[:, at], found), step(own, ids[:, at], exact))
    caches_are_alike(found, exact)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))],
    ids=["deepcopy", "pickle"],
)
def test_copies_of_a_cache_go_ways_of_their_own(copied: Any) -> None:
    quantized = decoder()
    own = apart(quantized)
    ids = torch.randint(3, 99, (1, 12))
    cache = transformers.DynamicCache()
    step(quantized, ids[:, :6], cache)
    step(quantized, ids[:, 6:7], cache)
    again = copied(cache)
    one, other = step(quantized, ids[:, 7:8], cache), step(quantized, ids[:, 9:10], again)
    for last, found in ((ids[:, 7:8], one), (ids[:, 9:10], other)):
        exact = transformers.DynamicCache()
        step(own, ids[:, :6], exact)
        step(own, ids[:, 6:7], exact)
        near(found, step(own, last, exact))


def test_layers_that_share_tensors_do_not_write_into_one_another() -> None:
    quantized = decoder()
    ids = torch.randint(3, 99, (1, 12))
    cache = transformers.DynamicCache()
    for at in (slice(0, 6), slice(6, 7)):
        step(quantized, ids[:, at], cache)
    again = transformers.DynamicCache()
    again.layers = [copy.copy(layer) for layer in cache.layers]
    step(quantized, ids[:, 7:8], cache)
    kept = cache.layers[0].keys.clone()
    step(quantized, ids[:, 9:10], again)
    assert torch.equal(cache.layers[0].keys, kept)
    assert not torch.equal(again.layers[0].keys, kept)


def test_new_keys_are_written_where_there_is_room() -> None:
    quantized = decoder()
    ids = torch.randint(3, 99, (1, 40))
    cache = transformers.DynamicCache()
    step(quantized, ids[:, :6], cache)
    step(quantized, ids[:, 6:7], cache)
    layer = cache.layers[0]
    at, room = layer.keys.data_ptr(), layer.__dict__[ROOM]
    before = layer.keys
    held = before.clone()
    for i in range(7, 40):
        step(quantized, ids[:, i : i + 1], cache)
    assert layer.keys.data_ptr() == at
    assert layer.__dict__[ROOM] is room
    assert layer.keys.shape[2] == 40
    assert torch.equal(before, held)
