"""Models that generate, as ONNX files with flat tensors of keys and values.

LlamaForCausalLM    model.onnx: input_ids, attention_mask, position_ids, past_key_values.0.key, ..
                    -> logits, present.0.key, present.0.value, ..
T5, BART, Whisper   encoder_model.onnx, decoder_model.onnx (the first call, which makes keys and
                    values) and decoder_with_past_model.onnx (every further call)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from octavo.torch.hub.export_parts import (
    BATCH,
    TEXT_AXES,
    Axes,
    Example,
    Named,
    Part,
    mask,
    tokens,
)
from octavo.torch.run.calls import takes
from octavo.torch.run.tasks import Task

PAST = "past_sequence_length"
ENCODED = "encoder_sequence_length"
_TOTAL = "past_sequence_length + sequence_length"
# Model types that make positions of the mask by themselves, or of the cache's length.
_OWN_POSITIONS = frozenset({"opt"})


def causal_parts(model: Any) -> list[Part]:
    """Return the one file of a model that continues a text."""
    layers = model.config.get_text_config().num_hidden_layers
    names = [f"{i}.{kind}" for i in range(layers) for kind in ("key", "value")]
    examples = [_continued(model, names, batch, past, new) for batch, past, new in _CALLS]
    axes: dict[str, Axes] = dict.fromkeys(examples[0], TEXT_AXES)
    axes |= {f"past_key_values.{name}": {0: BATCH, 2: PAST} for name in names}
    axes["attention_mask"] = {0: BATCH, 1: _TOTAL}
    outputs = ("logits", *(f"present.{name}" for name in names))
    module = Named(model, tuple(examples[0]), _call_causal)
    return [Part("model.onnx", module, examples, outputs, axes)]


_CALLS = ((2, 4, 3), (2, 0, 6), (3, 7, 1))
"""Batch, tokens in the cache, new tokens: as traced, the first call, and a further one."""


def _continued(model: Any, names: Sequence[str], batch: int, past: int, new: int) -> Example:
    total = past + new
    found = {"input_ids": tokens(model, batch, new, seed=total)}
    # Padding comes first here, and only among what the cache holds: a token of padding attends to
    # nothing, and what it gives means nothing.
    padded = mask(batch, total).flip(1) if past > 1 else torch.ones(batch, total, dtype=torch.int64)
    found["attention_mask"] = padded
    if takes(model, "position_ids") and model.config.model_type not in _OWN_POSITIONS:
        found["position_ids"] = (found["attention_mask"].cumsum(1) - 1).clamp(min=0)[:, past:]
    shapes = key_value_shapes(model)
    made = torch.Generator().manual_seed(total)
    for name in names:
        layer, kind = name.split(".")
        heads, width = shapes[int(layer)][kind == "value"]
        shape = (batch, heads, past, width)
        found[f"past_key_values.{name}"] = torch.randn(shape, generator=made)
    return found


def _call_causal(model: Any, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
    from transformers import DynamicCache

    past = _pairs([given.pop(name) for name in list(given) if name.startswith("past_key_values")])
    out = model(**given, past_key_values=DynamicCache(past), use_cache=True)
    return (out.logits, *flat(out.past_key_values))


def _pairs(tensors: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def flat(cache: Any) -> list[Tensor]:
    """Keys and values of a DynamicCache, layer by layer."""
    return [t for layer in cache.layers for t in (layer.keys, layer.values)]


def key_value_shapes(model: Any) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return (heads, width) of the keys and of the values of each layer, as a call makes them."""
    ids = torch.full((1, 1), min(5, model.config.get_text_config().vocab_size - 1))
    with torch.no_grad():
        cache = model(input_ids=ids, use_cache=True).past_key_values
    return [_shapes_of(layer) for layer in cache.layers]


def _shapes_of(layer: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    k, v = layer.keys.shape, layer.values.shape
    return (k[1], k[3]), (v[1], v[3])


def encoder_decoder_parts(model: Any, task: Task) -> list[Part]:
    """Return the three files of a model that reads with an encoder and writes with a decoder."""
    encoder, states = _encoder_part(model, task)
    return [encoder, *_decoder_parts(model, task, states)]


def _encoder_part(model: Any, task: Task) -> tuple[Part, list[Example]]:
    """Return the encoder's file, and for each example the encoder's states with their mask."""
    if task is Task.SPEECH_TO_TEXT:
        examples = [_speech(model, batch) for batch in (2, 1)]
        axes: dict[str, Axes] = {"input_features": {0: BATCH}}
    else:
        sizes = ((2, 9), (3, 12))
        examples = [
            {"input_ids": tokens(model, *size, seed=size[1]), "attention_mask": mask(*size)}
            for size in sizes
        ]
        axes = dict.fromkeys(examples[0], TEXT_AXES)
    module = Named(model.get_encoder(), tuple(examples[0]), _call_encoder)
    part = Part("encoder_model.onnx", module, examples, ("last_hidden_state",), axes)
    states: list[Example] = []
    for example in examples:
        with torch.no_grad():
            (found,) = module(*example.values())
        masks = {"encoder_attention_mask": example["attention_mask"]} if len(example) > 1 else {}
        states.append({**masks, "encoder_hidden_states": found})
    return part, states


def _call_encoder(encoder: Any, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return (encoder(**given).last_hidden_state,)


def _speech(model: Any, batch: int) -> Example:
    config = model.config
    shape = (batch, config.num_mel_bins, 2 * config.max_source_positions)
    made = torch.Generator().manual_seed(batch)
    return {"input_features": torch.randn(shape, generator=made)}


def _decoder_parts(model: Any, task: Task, states: Sequence[Example]) -> list[Part]:
    first = _First(model)
    starts: list[Example] = [
        {"input_ids": tokens(model, s["encoder_hidden_states"].shape[0], n, seed=n), **s}
        for s, n in zip(states, (3, 1), strict=True)
    ]
    open_states = {0: BATCH, 1: ENCODED}
    if task is Task.SPEECH_TO_TEXT:
        open_states = {0: BATCH}
    axes: dict[str, Axes] = {
        "input_ids": TEXT_AXES,
        "encoder_attention_mask": open_states,
        "encoder_hidden_states": open_states,
    }
    with torch.no_grad():
        made = [first.call(start) for start in starts]
    names = first.names(len(made[0]) - 1)
    outputs = ("logits", *(f"present.{name}" for name in names))
    start_part = Part(
        "decoder_model.onnx",
        Named(model, tuple(starts[0]), _call_first),
        starts,
        outputs,
        {name: axes[name] for name in starts[0]},
    )
    further = [
        {
            **start,
            "input_ids": tokens(model, start["input_ids"].shape[0], new, seed=7),
            **{f"past_key_values.{n}": t for n, t in zip(names, found[1:], strict=True)},
        }
        for start, found, new in zip(starts, made, (2, 1), strict=True)
    ]
    own = [name for name in names if "decoder" in name]
    past_axes = {
        f"past_key_values.{n}": {0: BATCH, 2: PAST} if n in own else _cross(open_states)
        for n in names
    }
    further_part = Part(
        "decoder_with_past_model.onnx",
        Named(model, tuple(further[0]), _call_further),
        further,
        ("logits", *(f"present.{name}" for name in own)),
        {**{name: axes[name] for name in starts[0]}, **past_axes},
    )
    return [start_part, further_part]


def _cross(states: Mapping[int, str]) -> Axes:
    """Return the open axes of keys and values that the encoder's states become."""
    return {0: BATCH, **({2: ENCODED} if 1 in states else {})}


class _First:
    """The first call of a decoder, to see what it gives."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def call(self, given: Example) -> tuple[Tensor, ...]:
        return _call_first(self._model, dict(given))

    @staticmethod
    def names(count: int) -> list[str]:
        kinds = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
        return [f"{i}.{kind}" for i in range(count // 4) for kind in kinds]


def _call_first(model: Any, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
    from transformers import DynamicCache, EncoderDecoderCache

    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    out = _decode(model, given, cache)
    found = zip(
        out.past_key_values.self_attention_cache.layers,
        out.past_key_values.cross_attention_cache.layers,
        strict=True,
    )
    kept = [t for own, cross in found for layer in (own, cross) for t in (layer.keys, layer.values)]
    return (out.logits, *kept)


def _call_further(model: Any, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
    from transformers import DynamicCache, EncoderDecoderCache

    past = [given.pop(name) for name in list(given) if name.startswith("past_key_values")]
    own = [(past[i], past[i + 1]) for i in range(0, len(past), 4)]
    cross = [(past[i + 2], past[i + 3]) for i in range(0, len(past), 4)]
    out = _decode(model, given, EncoderDecoderCache(DynamicCache(own), DynamicCache(cross)))
    return (out.logits, *flat(out.past_key_values.self_attention_cache))


def _decode(model: Any, given: Mapping[str, Tensor], cache: Any) -> Any:
    masks = {"attention_mask": given["encoder_attention_mask"]} if len(given) > 2 else {}
    return model(
        decoder_input_ids=given["input_ids"],
        encoder_outputs=(given["encoder_hidden_states"],),
        past_key_values=cache,
        use_cache=True,
        **masks,
    )
