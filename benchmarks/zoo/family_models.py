"""Models of the families, and what they are called with; weights are random, the same each time."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo import family_blocks
from benchmarks.zoo.families import TOKENS
from benchmarks.zoo.family import Family, Inputs, Size

Feed = dict[str, Tensor]
STATES = 128
"""Of the encoder that a decoder reads, as it is measured."""
SOUND = 40_960
"""Samples of sound: 127 frames of wav2vec2."""


def model(
    family: Family, size: Size, attention: str = "sdpa", *, head: bool = False, seed: int = 0
) -> Any:
    """The module in eval mode, float32; with `head` the whole model that generates.

    `attention` is one of the family's spellings. Raises ValueError if transformers does not have
    it for that class.
    """
    name = family.head if head else family.kind
    arguments = family.arguments(size)
    torch.manual_seed(seed)  # for what a module makes beside its parameters
    if hasattr(family_blocks, name):
        made = getattr(family_blocks, name)(**arguments)
    else:
        import transformers

        kind = getattr(transformers, name)
        made = kind._from_config(kind.config_class(**arguments), attn_implementation=attention)
    _fill(made.eval(), seed)
    return made if head or not family.part else attrgetter(family.part)(made)


def _fill(module: nn.Module, seed: int) -> None:
    """Weights that keep activations of order 1, and so large that every part of a model shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            holder = module.get_submodule(name.rpartition(".")[0])
            owner = type(holder).__name__
            if parameter.dim() < 2:  # biases, and the weights of norms
                parameter.add_(noise, alpha=0.1)
            elif "Embedding" in owner or name.endswith(("_token", "embeddings", "embedding")):
                # Gemma multiplies by the root of its width, which would drown all blocks.
                parameter.copy_(noise * 0.5 / float(getattr(holder, "embed_scale", 1.0)))
            elif "relative_position_bias" in name:
                parameter.copy_(noise)
            else:
                fan_in = parameter.shape[0] if owner == "Conv1D" else parameter[0].numel()
                # T5 does not divide by the root of the head's width.
                unscaled = owner == "Linear" and name.endswith(
                    ("SelfAttention.q.weight", "EncDecAttention.q.weight")
                )
                parameter.copy_(noise * (0.25 if unscaled else 1) / fan_in**0.5)


def feed(
    family: Family,
    size: Size,
    batch: int = 1,
    length: int = 128,
    *,
    padded: bool = False,
    seed: int = 0,
) -> Feed:
    """The arguments of one call by name; with `padded`, masks leave out a part of all rows but one.

    Pictures and spectrograms have the sizes that the model is made for, whatever `length` is.
    """
    generator = torch.Generator().manual_seed(seed)
    given = _GIVEN[family.inputs](family, size, (batch, length), generator)
    return _padded(family, given) if padded else given


def _tokens(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.randint(5, TOKENS, shape, generator=generator)


def _text(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    ids = _tokens(shape, of)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _image(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    edge = family.arguments(size).get("image_size", 224)
    return {"pixel_values": torch.randn(shape[0], 3, edge, edge, generator=of)}


def _mel(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    arguments = family.arguments(size)
    frames = 2 * arguments.get("max_source_positions", 1500)
    bands = arguments.get("num_mel_bins", 80)
    return {"input_features": torch.randn(shape[0], bands, frames, generator=of)}


def _wave(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    samples = SOUND if size is Size.PUBLISHED else 40 * shape[1]
    return {"input_values": torch.randn(shape[0], samples, generator=of)}


def _states(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    return {"src": torch.randn(*shape, family.widths(size)[0], generator=of)}


def _cross_text(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    encoded = STATES if size is Size.PUBLISHED else 7
    states = torch.randn(shape[0], encoded, family.widths(size)[0], generator=of)
    return {"input_ids": _tokens(shape, of), "encoder_hidden_states": states}


def _cross_states(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    width = family.widths(size)[0]
    tgt = torch.randn(*shape, width, generator=of)
    return {"tgt": tgt, "memory": torch.randn(*shape, width, generator=of)}


def _translation(family: Family, size: Size, shape: tuple[int, int], of: torch.Generator) -> Feed:
    return {**_text(family, size, shape, of), "decoder_input_ids": _tokens(shape, of)}


_GIVEN: dict[Inputs, Callable[[Family, Size, tuple[int, int], torch.Generator], Feed]] = {
    Inputs.TEXT: _text,
    Inputs.IMAGE: _image,
    Inputs.MEL: _mel,
    Inputs.WAVE: _wave,
    Inputs.STATES: _states,
    Inputs.CROSS_TEXT: _cross_text,
    Inputs.CROSS_STATES: _cross_states,
    Inputs.TRANSLATION: _translation,
}


def can_pad(family: Family) -> bool:
    """Whether calls of it take a mask."""
    if family.kind == "WhisperModel":  # its encoder reads silence instead
        return False
    return family.inputs in (Inputs.TEXT, Inputs.TRANSLATION, Inputs.CROSS_TEXT) or (
        family.kind.startswith("transformer_")
    )


def _padded(family: Family, given: Feed) -> Feed:
    """Row i lacks 2 i of its keys: the first ones of a decoder, the last ones of an encoder."""
    if "src" in given:
        return {**given, "src_key_padding_mask": ~_mask(given["src"], first=False)}
    if "memory" in given:
        return {**given, "memory_key_padding_mask": ~_mask(given["memory"], first=False)}
    if "encoder_hidden_states" in given:
        mask = _mask(given["encoder_hidden_states"], first=False)
        return {**given, "encoder_attention_mask": mask.long()}
    mask = _mask(given["input_ids"], first=family.cached)
    ids = torch.where(mask, given["input_ids"], 0)
    return {**given, "input_ids": ids, "attention_mask": mask.long()}


def _mask(of: Tensor, first: bool) -> Tensor:
    """Which of [batch, length] count."""
    batch, length = of.shape[:2]
    left_out = (2 * torch.arange(batch)).clamp(max=length - 1)[:, None]
    places = torch.arange(length)[None]
    return places >= left_out if first else places < length - left_out


def output(found: Any) -> Tensor:
    """The first tensor of what a model returned: hidden states, or logits."""
    first: Tensor = found if isinstance(found, Tensor) else found[0]
    return first


def counting(given: Feed, found: Tensor) -> Tensor:
    """The rows of an output [batch, length, ..] that a mask of `given` leaves."""
    if "src_key_padding_mask" in given:
        return found[~given["src_key_padding_mask"]]
    mask = given.get("attention_mask")
    if mask is None or "decoder_input_ids" in given or found.shape[:2] != mask.shape:
        return found
    return found[mask.bool()]


class Step:
    """One more token after a cache of keys and values; every call starts from the same cache."""

    def __init__(self, family: Family, module: Any, given: Feed) -> None:
        given = dict(given)
        tokens = given.pop("input_ids")
        before = {**given, "input_ids": tokens[:, :-1]}
        if "attention_mask" in given:
            before["attention_mask"] = given["attention_mask"][:, :-1]
        self._module = module
        self._given = {**given, "input_ids": tokens[:, -1:]}
        # Its name before transformers 5.20 or so.
        known = inspect.signature(module.forward).parameters
        self._name = "cache" if "cache" in known else "past_key_values"
        self._cache = _empty_cache(module, "encoder_hidden_states" in given)
        module(**before, **{self._name: self._cache}, use_cache=True)
        self._first = self._cache.get_seq_length()

    def __call__(self) -> Tensor:
        """Hidden states of the token [batch, 1, width]."""
        cache = {self._name: same_cache(self._cache)}
        return output(self._module(**self._given, **cache, use_cache=True))


class Steps(Step):
    """One more token after those before it, as `generate` asks for them. A cache of twice as many
    tokens as at first is cut back to those."""

    def __call__(self) -> Tensor:
        """Hidden states of the token [batch, 1, width]."""
        more = self._cache.get_seq_length() - self._first
        if more >= self._first:
            self._cache.crop(-more)
            more = 0
        given = {**self._given, self._name: self._cache}
        if "attention_mask" in given:
            mask = given["attention_mask"]
            given["attention_mask"] = mask.new_ones(len(mask), self._first + more + 1)
        return output(self._module(**given, use_cache=True))


def _empty_cache(module: Any, crossed: bool) -> Any:
    from transformers import DynamicCache, EncoderDecoderCache

    own = DynamicCache(config=module.config)
    return EncoderDecoderCache(own, DynamicCache(config=module.config)) if crossed else own


def same_cache(cache: Any) -> Any:
    """A cache over the same tensors, which a call may put others in the place of."""
    made = copy.copy(cache)
    for name in ("self_attention_cache", "cross_attention_cache"):
        if hasattr(made, name):
            setattr(made, name, same_cache(getattr(made, name)))
    if hasattr(made, "is_updated"):
        made.is_updated = dict(made.is_updated)
    if "layers" in vars(made):
        made.layers = [copy.copy(layer) for layer in made.layers]
    return made
