"""A quantized model follows the dtype that its float one would have, however that was given."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.torch import quantize_dynamic
from octavo.torch.hub import OctavoConfig
from octavo.torch.layers.base import QuantizedModule
from tests.models import relative, seeded, tokens, transformer

IMAGE = {"image_size": 32, "patch_size": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "BertModel": {}, "RobertaModel": {}, "DistilBertModel": {}, "GPT2LMHeadModel": {},
    "ModernBertModel": {"pad_token_id": 0}, "OPTForCausalLM": {}, "LlamaForCausalLM": {},
    "ViTModel": IMAGE, "DeiTModel": IMAGE, "Dinov2Model": IMAGE, "DINOv3ViTModel": IMAGE,
}  # fmt: skip
HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


def cast(model: Any, dtype: torch.dtype, folder: Path) -> Any:
    return quantize_dynamic(model).to(dtype)


def cast_after_a_call(model: Any, dtype: torch.dtype, folder: Path) -> Any:
    quantized = quantize_dynamic(model)
    outputs(quantized, torch.float32)
    return quantized.to(dtype)


def cast_before(model: Any, dtype: torch.dtype, folder: Path) -> Any:
    return quantize_dynamic(model.to(dtype))


def loaded(model: Any, dtype: torch.dtype, folder: Path) -> Any:
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder, dtype=dtype, quantization_config=OctavoConfig())


def saved(model: Any, dtype: torch.dtype, folder: Path) -> Any:
    model.save_pretrained(folder / "float")
    quantized = type(model).from_pretrained(folder / "float", quantization_config=OctavoConfig())
    quantized.save_pretrained(folder / "int8")
    return type(model).from_pretrained(folder / "int8", dtype=dtype)


WAYS = pytest.mark.parametrize(
    "way", [cast, cast_after_a_call, cast_before, loaded, saved], ids=lambda way: way.__name__
)


@torch.no_grad()
def outputs(model: Any, dtype: torch.dtype) -> torch.Tensor:
    if hasattr(model.config, "image_size"):
        given = {"pixel_values": seeded(2, 3, 32, 32).to(dtype)}
    else:
        given = {"input_ids": tokens(2, 9)}
    found: torch.Tensor = model.eval()(**given)[0]
    return found


def kinds(model: Any) -> set[torch.dtype]:
    layers = [m for m in model.modules() if isinstance(m, QuantizedModule)]
    return {m.weight.dtype for m in layers}


@pytest.mark.sweep(9)
@HALVES
@WAYS
@pytest.mark.parametrize("name", FAMILIES)
def test_families_in_16_bits(name: str, way: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = transformer(name, **FAMILIES[name])
    expected = outputs(model, torch.float32)
    quantized = way(copy.deepcopy(model), dtype, tmp_path)
    found = outputs(quantized, dtype)
    assert found.dtype is dtype and kinds(quantized) == {dtype}
    assert relative(found.float(), expected) < 0.06
    wide = quantized.to(torch.float32)
    assert outputs(wide, torch.float32).dtype is torch.float32 and kinds(wide) == {torch.float32}
