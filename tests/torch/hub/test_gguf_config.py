"""Fields of GGUF files that transformers drops: the float model's positions, heads and windows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from octavo.errors import ModelError
from octavo.torch import report
from octavo.torch.hub import OctavoConfig, load_gguf
from octavo.torch.hub.gguf_checkpoint import find_gguf
from tests import fresh
from tests.models import relative, transformer
from tests.torch.hub.gguf_models import write_model

IDS = torch.arange(2, 42)[None]
CONTEXT = 64
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8}
PARTIAL = {"rope.dimension_count": 8}
MODELS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("Llama", "llama", {"head_dim": 32}, {}),
    "llama, biases": ("Llama", "llama", {"attention_bias": True, "mlp_bias": True}, {}),
    "mistral": ("Mistral", "llama", {"sliding_window": 8}, {"attention.sliding_window": 8}),
    "mistral, whole": ("Mistral", "llama", {"sliding_window": None}, {}),
    "qwen2": ("Qwen2", "qwen2", {}, {}),
    "qwen3": ("Qwen3", "qwen3", {"head_dim": 32}, {}),
    "gemma2": ("Gemma2", "gemma2", GEMMA, {"attention.sliding_window": 8}),
    "gemma2, capped": (
        "Gemma2",
        "gemma2",
        GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        {
            "attention.sliding_window": 8,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": ("Gemma3", "gemma3", GEMMA, {"attention.sliding_window": 8}),
    "phi3": (
        "Phi3",
        "phi3",
        {"pad_token_id": 0, "sliding_window": 8},
        {"attention.sliding_window": 8},
    ),
    "starcoder2": (
        "Starcoder2",
        "starcoder2",
        {"pad_token_id": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"rope.freq_base": 500.0},
    ),
    "stablelm": (
        "StableLm",
        "stablelm",
        {"pad_token_id": 0, "partial_rotary_factor": 0.5},
        PARTIAL,
    ),
    "nemotron": (
        "Nemotron",
        "nemotron",
        {"pad_token_id": 0, "partial_rotary_factor": 0.5},
        PARTIAL,
    ),
}


def _model(kind: str, **given: Any) -> Any:
    """Weights that have scores, and so positions, matter."""
    given = {"num_hidden_layers": 2 if kind == "Gemma2" else 1} | given
    model = transformer(f"{kind}ForCausalLM", max_position_embeddings=CONTEXT, **given)
    for name, parameter in model.named_parameters():
        values = torch.rand_like(parameter) * 0.5 + ("norm" in name)
        parameter.data = values if parameter.dim() == 1 else parameter.data * 3
    return model


@torch.no_grad()
def _logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(IDS).logits
    return found


_OPENED = """
import sys, torch, transformers, octavo.torch
for folder in sys.argv[1:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        torch.save(model(torch.arange(2, 42)[None]).logits, folder + "/logits.pt")
"""


@pytest.mark.parametrize(
    "names",
    [("mistral", "gemma3"), pytest.param(tuple(MODELS), marks=pytest.mark.slow)],
    ids=["two", "all"],
)
def test_an_architecture_answers_as_its_float_model_and_opens_anew(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    expected = {}
    for name in names:
        kind, architecture, given, said = MODELS[name]
        model = _model(kind, **given)
        path = write_model(tmp_path / f"{name}.gguf", model, architecture, "Q8_0", said=said)
        made = load_gguf(path)
        assert relative(_logits(made), _logits(model)) < 0.07, name
        assert not any("no place" in note for note in report(made).notes), name
        made.save_pretrained(tmp_path / name)
        expected[name] = _logits(made)
    fresh.python(_OPENED, *(tmp_path / name for name in names))
    for name in names:
        assert torch.equal(torch.load(tmp_path / name / "logits.pt"), expected[name]), name


def _llama3(base: float, half: int, factor: float, context: int) -> Any:
    """rope_freqs.weight as llama.cpp's converter computes it for Llama 3.1."""
    found = []
    for i in range(half):
        wave = 2 * math.pi * base ** (i / half)
        smooth = (context / wave - 1) / (4 - 1)
        near, far = wave < context / 4, wave > context
        found.append(1 if near else factor if far else 1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


ARBITRARY = [1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 7.0, 9.0]
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "linear": (
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        {},
        {"rope_type": "linear", "factor": 4.0},
    ),
    "linear, as nothing else is said": (
        {"rope.scaling.factor": 4.0},
        {},
        {"rope_type": "linear", "factor": 4.0},
    ),
    "linear, of old": (
        {"rope.scale_linear": 2.0},
        {},
        {"rope_type": "linear", "factor": 2.0},
    ),
    "none": (
        {"rope.scaling.type": "none", "rope.scaling.factor": 4.0},
        {},
        {"rope_type": "default"},
    ),
    "yarn": (
        YARN | {"rope.scaling.original_context_length": 16},
        {},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ),
    "yarn of the whole context": (
        YARN | {"rope.scaling.attn_factor": 0.5},
        {},
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "attention_factor": 0.5 * (1 + 0.1 * math.log(4)),
            "original_max_position_embeddings": CONTEXT,
        },
    ),
    "yarn with its ramp": (
        YARN | {"rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 2.0},
        {},
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 8.0,
            "beta_slow": 2.0,
            "original_max_position_embeddings": CONTEXT,
        },
    ),
    "Llama 3.1": (
        {"rope.freq_base": 500_000.0},
        {"rope_freqs.weight": _llama3(500_000.0, 8, 8.0, 8192)},
        {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "of another context": (
        {},
        {"rope_freqs.weight": _llama3(10_000.0, 8, 8.0, 32)},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "any factors": (
        {},
        {"rope_freqs.weight": ARBITRARY},
        {
            "rope_type": "longrope",
            "long_factor": ARBITRARY,
            "short_factor": ARBITRARY,
            "attention_factor": 1.0,
            "original_max_position_embeddings": CONTEXT,
        },
    ),
    "long and short": (
        {
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": 1.25,
        },
        {"rope_factors_long.weight": ARBITRARY, "rope_factors_short.weight": ARBITRARY[::-1]},
        {
            "rope_type": "longrope",
            "long_factor": ARBITRARY,
            "short_factor": ARBITRARY[::-1],
            "attention_factor": 1.25,
            "original_max_position_embeddings": 16,
        },
    ),
}


def _cosines(model: Any) -> list[torch.Tensor]:
    """What turns queries and keys: of short texts and of long ones."""
    core = model.model.rotary_emb
    more = ("full_attention",) if type(model).__name__.startswith("Gemma3") else ()
    places = (torch.arange(12)[None], torch.arange(60)[None])
    return [found for p in places for found in core(torch.ones(1), p, *more)]


NARROW: dict[str, dict[str, Any]] = {
    "Llama": {"head_dim": 16},
    "Qwen2": {},
    "Gemma3": {"head_dim": 16, "query_pre_attn_scalar": 16, "num_hidden_layers": 6},
    "Phi3": {"pad_token_id": 0},
}
LONGROPE = [name for name, (_, _, p) in SCALINGS.items() if p["rope_type"] == "longrope"]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in NARROW for name in SCALINGS if kind != "Phi3" or name in LONGROPE],
)
def test_positions_are_scaled_as_the_file_says(name: str, kind: str, tmp_path: Path) -> None:
    said, more, parameters = SCALINGS[name]
    given: dict[str, Any] = dict(NARROW[kind])
    parameters = {"rope_theta": said.get("rope.freq_base", 10_000.0)} | parameters
    if kind == "Phi3":
        original = said.get("rope.scaling.original_context_length", CONTEXT)
        given["original_max_position_embeddings"] = original
    if kind == "Gemma3":  # the others are of local positions
        parameters = {"full_attention": parameters, "sliding_attention": {"rope_type": "default"}}
    model = _model(kind, rope_parameters=parameters, **given)
    path = write_model(tmp_path / "m.gguf", model, kind.lower(), "Q8_0", said=said, more=more)
    made = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", quantization_config=OctavoConfig()
    )
    for found, expected in zip(_cosines(made), _cosines(model), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
    assert not any("no place" in note for note in report(made).notes)
    made.config.save_pretrained(tmp_path)
    for other in (find_gguf(path).config, transformers.AutoConfig.from_pretrained(tmp_path)):
        assert other.rope_parameters == made.config.rope_parameters


@pytest.mark.parametrize("name", ["linear", "yarn", "Llama 3.1"])
def test_a_scaling_that_the_class_has_not_is_refused(name: str, tmp_path: Path) -> None:
    said, more, _ = SCALINGS[name]
    model = _model("Phi3", pad_token_id=0)
    path = write_model(tmp_path / "m.gguf", model, "phi3", "Q8_0", said=said, more=more)
    with pytest.raises(ModelError, match=r"rope.* is nothing that Phi3Config can do"):
        load_gguf(path)


def test_a_sliding_window_of_a_llama_is_read_as_mistral(tmp_path: Path) -> None:
    model = _model("Mistral", sliding_window=8)
    model.config.model_type = "llama"
    path = write_model(
        tmp_path / "m.gguf", model, "llama", "Q8_0", said={"attention.sliding_window": 8}
    )
    made = load_gguf(path)
    assert type(made) is transformers.MistralForCausalLM
    assert relative(_logits(made), _logits(model)) < 0.07
    with pytest.raises(ModelError, match=r"llama\.attention\.sliding_window is 8, and LlamaConfig"):
        transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file="m.gguf", quantization_config=OctavoConfig()
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.scaling.type", "cubic"),
        ("rope.scaling.type", "longrope"),
        ("rope.scaling.attn_factor", 2.0),
        ("rope.scaling.alpha", 1000.0),
        ("rope.scaling.yarn_log_multiplier", 0.5),
        ("rope.scaling.yarn_ext_factor", 0.5),
        ("rope.scaling.yarn_attn_factor", 0.5),
        ("rope.dimension_count", 8),
        ("attention.value_length", 32),
        ("attention.scale", 0.5),
        ("attention.max_alibi_bias", 8.0),
        ("attention.clamp_kqv", 8.0),
        ("attn_logit_softcapping", 30.0),
        ("final_logit_softcapping", 30.0),
        ("logit_scale", 0.5),
        ("residual_scale", 0.5),
        ("embedding_scale", 12.0),
    ],
)
def test_a_field_without_a_place_is_refused_by_name(key: str, value: Any, tmp_path: Path) -> None:
    model = _model("Qwen2")
    path = write_model(tmp_path / "m.gguf", model, "qwen2", "Q8_0", said={key: value})
    with pytest.raises(ModelError, match=rf"qwen2\.{key} is {value}, .*float checkpoint"):
        load_gguf(path)
