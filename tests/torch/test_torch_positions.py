"""Decoders on batches that are padded on the left, with position ids and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.torch import quantize_dynamic, report
from octavo.torch.reports import POSITIONS
from tests import models

PADS, LENGTH, BATCH = 7, 12, 8
SHARP: dict[str, Any] = {"initializer_range": 0.15}
ROTARY = ("LlamaForCausalLM", "Qwen3ForCausalLM")
LEARNED = ("GPT2LMHeadModel",)


def probabilities(model: Any, pads: int = 0, ids: str = "", noise: float = 0.0) -> Tensor:
    """Return those of the tokens, behind so many columns of padding."""
    torch.manual_seed(1)
    tokens = torch.randint(1, models.VOCABULARY, (BATCH, LENGTH))
    tokens = torch.cat([torch.zeros(BATCH, pads, dtype=torch.long), tokens], 1)
    mask = (torch.arange(pads + LENGTH) >= pads).long().expand(BATCH, -1)
    with torch.inference_mode():
        found = model.get_input_embeddings()(tokens)
        given = {"inputs_embeds": found * (1 + noise * torch.randn_like(found))}
        if ids == "counted":
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        elif ids == "moved":
            given["position_ids"] = torch.arange(PADS, PADS + LENGTH).expand(BATCH, -1)
        return model(attention_mask=mask, **given).logits[:, pads:].softmax(-1)  # type: ignore[no-any-return]


def moved(found: Tensor, exact: Tensor) -> float:
    return (found - exact).abs().max().item()


@pytest.mark.parametrize(
    ("name", "recipe"), [*((name, "int8") for name in (*ROTARY, *LEARNED)), (ROTARY[0], "int4")]
)
def test_with_position_ids_padding_moves_nothing(name: str, recipe: str) -> None:
    model = quantize_dynamic(models.transformer(name, **SHARP), recipe=recipe)
    assert moved(probabilities(model, PADS, "counted"), probabilities(model)) < 1e-6
    assert POSITIONS in report(model).notes


@pytest.mark.parametrize("name", ROTARY)
def test_without_them_rotary_positions_move_what_is_rounded_and_no_more(name: str) -> None:
    """Positions alone that are moved do the same, and so does noise of a float's last bits."""
    floating = models.transformer(name, **SHARP)
    model = quantize_dynamic(floating)
    exact, quantized = probabilities(floating), probabilities(model)
    assert moved(probabilities(floating, PADS), exact) < 1e-5
    padded = probabilities(model, PADS)
    assert moved(padded, probabilities(model, ids="moved")) < 1e-6
    assert 0 < moved(padded, quantized) < moved(quantized, exact)
    by_noise = max(moved(probabilities(model, noise=1e-7 * n), quantized) for n in (1, 2, 4))
    assert moved(padded, quantized) < 4 * by_noise


@pytest.mark.parametrize("name", LEARNED)
def test_without_them_learned_positions_are_others_in_float_too(name: str) -> None:
    floating = models.transformer(name, **SHARP)
    apart = moved(probabilities(floating, PADS), probabilities(floating))
    assert apart > 0.05
    model = quantize_dynamic(floating)
    assert moved(probabilities(model, PADS), probabilities(floating, PADS)) < apart / 2


@pytest.mark.parametrize("name", ["BertModel", "T5ForConditionalGeneration", "BloomForCausalLM"])
def test_what_needs_no_position_ids_is_told_nothing(name: str) -> None:
    assert POSITIONS not in report(quantize_dynamic(models.transformer(name))).notes
