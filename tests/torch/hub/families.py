"""Tiny models of several families with random weights, and inputs for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.models import seeded, tokens, transformer


@dataclass(frozen=True)
class Family:
    """`kind` is the model's class and `auto` the one that loads it; `inputs` are its arguments."""

    name: str
    kind: str
    auto: str
    inputs: Callable[[], dict[str, Any]]

    def make(self) -> Any:
        return transformer(self.kind)


def _ids() -> dict[str, Any]:
    return {"input_ids": tokens(2, 9)}


def _pair() -> dict[str, Any]:
    return _ids() | {"decoder_input_ids": tokens(2, 5, seed=1)}


def _sound() -> dict[str, Any]:
    return {"input_features": seeded(2, 80, 60), "decoder_input_ids": tokens(2, 5) + 1}


def _image() -> dict[str, Any]:
    return {"pixel_values": seeded(2, 3, 32, 32)}


def _wave() -> dict[str, Any]:
    return {"input_values": seeded(2, 2000)}


CAUSAL, TO_TEXT = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
FAMILIES = (
    Family("bert", "BertModel", "AutoModel", _ids),
    Family("llama", "LlamaForCausalLM", CAUSAL, _ids),
    Family("qwen3-tied", "Qwen3ForCausalLM", CAUSAL, _ids),
    Family("mixtral", "MixtralForCausalLM", CAUSAL, _ids),
    Family("gpt2", "GPT2LMHeadModel", CAUSAL, _ids),
    Family("t5", "T5ForConditionalGeneration", TO_TEXT, _pair),
    Family("bart", "BartForConditionalGeneration", TO_TEXT, _pair),
    Family("whisper", "WhisperForConditionalGeneration", "AutoModelForSpeechSeq2Seq", _sound),
    Family("vit", "ViTForImageClassification", "AutoModelForImageClassification", _image),
    Family("wav2vec2", "Wav2Vec2Model", "AutoModel", _wave),
)
BY_NAME = {family.name: family for family in FAMILIES}
BERT, LLAMA = BY_NAME["bert"], BY_NAME["llama"]


def checkpoint(family: Family, folder: Path, **given: Any) -> Path:
    """A float folder of the family, as the hub has them."""
    family.make().save_pretrained(folder, **given)
    return folder


def load(family: Family, folder: Path, **given: Any) -> Any:
    """The model in `folder`, as users load it."""
    return getattr(transformers, family.auto).from_pretrained(folder, **given)


@torch.no_grad()
def outputs(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """The model's first output."""
    found: torch.Tensor = model(**inputs)[0]
    return found
