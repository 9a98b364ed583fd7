"""Caches of every kind are written to by one program, and hold what their own updates leave."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.torch.blocks.cache.cached_programs import Split, Whole
from octavo.torch.blocks.calls import BLOCK
from tests.models import relative
from tests.torch.blocks.one_call import apart, blocks, near
from tests.torch.blocks.test_torch_block_caches import DECODERS, decoder, prompt

transformers = pytest.importorskip("transformers")

ENCODERS = ("T5", "Bart", "Whisper")
LENGTH = 32
KINDS: dict[str, Callable[[Any, int], Any]] = {
    "growing": lambda config, _: transformers.DynamicCache(),
    "sliding": lambda config, _: transformers.DynamicCache(config=config),
    "static": lambda config, length: transformers.StaticCache(config, max_cache_len=length),
}
FEW = {("Llama", "static"), ("Mistral", "sliding"), ("Bart", "static")}
CASES = [
    pytest.param(name, kind, marks=() if (name, kind) in FEW else pytest.mark.slow)
    for name in DECODERS
    for kind in KINDS
]


@lru_cache
def models(name: str) -> tuple[Any, Any]:
    """A quantized decoder, and one whose blocks run their own forwards."""
    quantized = decoder(name)
    return quantized, apart(quantized)


class Steps:
    """A quantized decoder and its own forwards, each with a cache of one kind."""

    def __init__(self, name: str, kind: str) -> None:
        self.quantized, self.own = models(name)
        self.encoded, seen = {}, 0
        if name in ENCODERS:
            given = {k: v for k, v in prompt(name, 2).items() if k != "attention_mask"}
            found = self.quantized.get_encoder()(**given)
            self.encoded, seen = {"encoder_outputs": found}, found[0].shape[1]
        self.caches = [self._cache(kind, seen) for _ in range(2)]

    def _cache(self, kind: str, seen: int) -> Any:
        config = self.quantized.config
        made = KINDS[kind](config, LENGTH)
        if not seen:
            return made
        return transformers.EncoderDecoderCache(made, KINDS[kind](config, seen))

    def step(self, ids: Tensor, **more: Any) -> None:
        """Both go on with these, and have to agree on what comes out and on what is kept."""
        word = "decoder_input_ids" if self.encoded else "input_ids"
        found, exact = (
            model(**{word: ids}, cache=cache, use_cache=True, **self.encoded, **more).logits
            for model, cache in zip((self.quantized, self.own), self.caches, strict=True)
        )
        near(found, exact, 0.03)
        one, other = self.caches
        if self.encoded:
            assert one.is_updated == other.is_updated
            same(one.cross_attention_cache, other.cross_attention_cache)
            one, other = one.self_attention_cache, other.self_attention_cache
        same(one, other)


def same(found: Any, exact: Any) -> None:
    for one, other in zip(found.layers, exact.layers, strict=True):
        assert one.get_seq_length() == other.get_seq_length()
        assert one.get_mask_sizes(1) == other.get_mask_sizes(1)
        mine = {k: v for k, v in vars(one).items() if not k.startswith("_octavo")}
        assert mine.keys() == vars(other).keys()
        for key, value in mine.items():
            wanted = vars(other)[key]
            if not isinstance(wanted, Tensor):
                assert value == wanted, key
            elif wanted.is_floating_point():
                assert relative(value, wanted) <= 0.03, key
            else:
                assert torch.equal(value, wanted), key


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_one_program_keeps_what_the_own_update_keeps(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[type] = []
    for program in (Split, Whole):
        run: Any = program.run
        noted = lambda self, *a, run=run: ran.append(type(self)) or run(self, *a)  # noqa: E731
        monkeypatch.setattr(program, "run", noted)
    both = Steps(name, kind)
    ids = torch.randint(3, 99, (2, 20))
    for at in (0, 3, 4, 5, 6, 8, 9):  # the window of 5 is full, and is passed by two at once
        both.step(ids[:, at : {0: 3, 6: 8}.get(at, at + 1)])
    ran.clear()
    for at in range(10, 14):
        both.step(ids[:, at : at + 1])
    assert len(ran) == 8
    assert set(ran) == {Whole}


CHANGES: dict[str, Callable[[Any], object]] = {
    "cropped": lambda cache: cache.crop(-2),
    "reordered": lambda cache: cache.reorder_cache(torch.tensor([1, 1])),
    "selected": lambda cache: cache.batch_select_indices(torch.tensor([1, 0])),
    "reset": lambda cache: cache.reset(),
    "written": lambda cache: cache.layers[0].keys.mul_(2),
    "replaced": lambda cache: setattr(cache.layers[0], "keys", cache.layers[0].keys.clone() * 2),
    "recording": lambda cache: cache.activate_past_recording(),
}
CHANGED = {
    "growing": "cropped reordered selected reset written replaced".split(),
    "sliding": "cropped reordered reset written recording".split(),
    "static": "cropped reordered reset written".split(),
}


@pytest.mark.parametrize(("kind", "change"), [(k, c) for k, of in CHANGED.items() for c in of])
def test_a_cache_that_is_changed_between_steps_is_seen(kind: str, change: str) -> None:
    both = Steps("Mistral", kind)
    ids = torch.randint(3, 99, (2, 20))
    filled = 4 if change == "cropped" else 8  # a full window cannot be cropped
    for at in (slice(0, 2), *(slice(i, i + 1) for i in range(2, filled))):
        both.step(ids[:, at])
    for cache in both.caches:
        CHANGES[change](cache)
    for at in (slice(8, 9), slice(9, 10), slice(10, 12), slice(12, 13), slice(13, 14)):
        both.step(ids[:, at])
    if change == "recording":
        for cache in both.caches:
            cache.crop(-3)
        both.step(ids[:, 14:15])
        both.step(ids[:, 15:16])


def test_a_layer_whose_update_somebody_replaces_is_left_its_own() -> None:
    both = Steps("Llama", "static")
    calls = []
    ids = torch.randint(3, 99, (2, 20))
    both.step(ids[:, :3])
    both.step(ids[:, 3:4])
    layer = both.caches[0].layers[0]
    update = layer.update
    layer.update = lambda *args, **kwargs: calls.append(args) or update(*args, **kwargs)
    try:
        both.quantized(ids[:, 4:5], cache=both.caches[0], use_cache=True)
    finally:
        del layer.update
    assert len(calls) == 1


def test_a_static_cache_that_is_full_says_so_and_counts_nothing() -> None:
    both = Steps("Llama", "static")
    ids = torch.randint(3, 99, (2, LENGTH + 1))
    both.step(ids[:, : LENGTH - 1])
    both.step(ids[:, LENGTH - 1 : LENGTH])
    with pytest.raises((IndexError, RuntimeError)):
        both.step(ids[:, LENGTH:])


def test_a_padded_batch_has_one_plan_however_long_it_grows() -> None:
    both = Steps("Llama", "growing")
    ids, mask = torch.randint(3, 99, (2, 20)), torch.ones(2, 20, dtype=torch.long)
    mask[0, :2] = 0
    both.step(ids[:, :4], attention_mask=mask[:, :4])
    for at in range(4, 20):
        both.step(ids[:, at : at + 1], attention_mask=mask[:, : at + 1])
    state = vars(blocks(both.quantized)[0])[BLOCK]
    assert max(len(found) for found in state._plans.values()) == 1


def test_threads_generate_on_one_model() -> None:
    quantized, _ = models("Mistral")
    prompts = [torch.randint(3, 99, (1, 3 + i)) for i in range(2)]

    def run(ids: Tensor) -> Any:
        with torch.no_grad():
            return quantized.generate(ids, max_new_tokens=10, do_sample=False)

    wanted = [run(ids) for ids in prompts]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, prompts * 2))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted * 2, strict=True))


@pytest.mark.parametrize(("kind", "keys"), [("growing", 240), ("sliding", 80)])
def test_memory_of_a_long_cache_is_in_proportion(kind: str, keys: int) -> None:
    both = Steps("Mistral", kind)
    ids = torch.randint(3, 99, (1, 150))
    cache = both.caches[0]
    for at in range(150):
        both.quantized(ids[:, at : at + 1], cache=cache, use_cache=True)
    (layer, *_) = cache.layers
    one = layer.keys.nbytes // layer.keys.shape[2]
    assert layer.keys.untyped_storage().nbytes() <= keys * one
