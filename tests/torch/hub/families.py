"""Tiny models of several families with random weights, and inputs for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

VOCABULARY = 512  # tables of 16 kB and more, which presets quantize


@dataclass(frozen=True)
class Family:
    """`make` returns a float model; `inputs` its arguments; `auto` is the class that loads it."""

    name: str
    make: Callable[[], Any]
    auto: str
    inputs: Callable[[], dict[str, Any]]


def _ids() -> dict[str, Any]:
    return {"input_ids": torch.randint(2, VOCABULARY, (2, 9))}


def _pair() -> dict[str, Any]:
    return _ids() | {"decoder_input_ids": torch.randint(2, VOCABULARY, (2, 5))}


def _bert() -> Any:
    return transformers.BertModel(
        transformers.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
        )
    )


def _decoder(kind: str, **given: Any) -> Any:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        **given,
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def _t5() -> Any:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=VOCABULARY,
            d_model=48,
            d_kv=12,
            d_ff=96,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
    )


def _bart() -> Any:
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=VOCABULARY,
            d_model=48,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=96,
            decoder_ffn_dim=96,
            max_position_embeddings=64,
        )
    )


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=64, n_embd=48, n_layer=2, n_head=4
        )
    )


def _whisper() -> Any:
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=VOCABULARY,
            d_model=48,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=96,
            decoder_ffn_dim=96,
            max_source_positions=30,
            max_target_positions=40,
            num_mel_bins=80,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    )


def _vit() -> Any:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=32,
            patch_size=8,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
            num_labels=10,
        )
    )


def _wav2vec2() -> Any:
    return transformers.Wav2Vec2Model(
        transformers.Wav2Vec2Config(
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
            conv_dim=(32, 32),
            conv_stride=(5, 2),
            conv_kernel=(10, 3),
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
        )
    )


FAMILIES = (
    Family("bert", _bert, "AutoModel", _ids),
    Family("llama", lambda: _decoder("Llama"), "AutoModelForCausalLM", _ids),
    Family(
        "qwen3-tied",
        lambda: _decoder("Qwen3", head_dim=16, tie_word_embeddings=True),
        "AutoModelForCausalLM",
        _ids,
    ),
    Family(
        "mixtral",
        lambda: _decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2),
        "AutoModelForCausalLM",
        _ids,
    ),
    Family("gpt2", _gpt2, "AutoModelForCausalLM", _ids),
    Family("t5", _t5, "AutoModelForSeq2SeqLM", _pair),
    Family("bart", _bart, "AutoModelForSeq2SeqLM", _pair),
    Family(
        "whisper",
        _whisper,
        "AutoModelForSpeechSeq2Seq",
        lambda: {
            "input_features": torch.randn(2, 80, 60),
            "decoder_input_ids": torch.randint(3, VOCABULARY, (2, 5)),
        },
    ),
    Family(
        "vit",
        _vit,
        "AutoModelForImageClassification",
        lambda: {"pixel_values": torch.randn(2, 3, 32, 32)},
    ),
    Family("wav2vec2", _wav2vec2, "AutoModel", lambda: {"input_values": torch.randn(2, 2000)}),
)


def checkpoint(family: Family, folder: Path, **given: Any) -> Path:
    """A float folder of the family, as the hub has them."""
    torch.manual_seed(0)
    family.make().eval().save_pretrained(folder, **given)
    return folder


def load(family: Family, folder: Path, **given: Any) -> Any:
    """The model in `folder`, as users load it."""
    return getattr(transformers, family.auto).from_pretrained(folder, **given)


@torch.no_grad()
def outputs(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """The model's first output."""
    found: torch.Tensor = model(**inputs)[0]
    return found
