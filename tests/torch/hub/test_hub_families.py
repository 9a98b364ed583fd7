"""Models of several families: quantized while they load, saved, loaded again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.quantizers import auto

from octavo.torch import quantize_dynamic, report
from octavo.torch.hub import OctavoConfig
from tests.torch.hub.families import BY_NAME, FAMILIES, Family, checkpoint, load, outputs

RUN = ("bert", "qwen3-tied", "mixtral")  # the others are compared by what they hold


def held(model: Any) -> dict[str, Any]:
    """Every tensor of a model, and the class that holds it."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for key, tensor in {**module._parameters, **module._buffers}.items():
            if tensor is not None:
                found[f"{name}.{key}"] = type(module).__name__, tensor.detach()
    return found


def assert_alike(one: Any, other: Any) -> None:
    """The same modules, and the same bits in them."""
    ours, theirs = held(one), held(other)
    assert ours.keys() == theirs.keys()
    for name, (kind, tensor) in ours.items():
        assert kind == theirs[name][0], name
        assert tensor.dtype == theirs[name][1].dtype, name
        assert torch.equal(tensor, theirs[name][1]), name


def assert_guarded(
    family: Family, folder: Path, patch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """`transformers` alone refuses the folder, and says what is to be done."""
    log.clear()
    with patch.context() as patched:
        patched.delitem(auto.AUTO_QUANTIZATION_CONFIG_MAPPING, "octavo")
        with pytest.raises(RuntimeError, match="You set `ignore_mismatched_sizes`"):
            load(family, folder)
    assert "import octavo.torch before from_pretrained" in log.text


IN_GROUPS = ("qwen3-tied", "gpt2", "t5")
"""Families that are loaded with four bits too: tied, transposed, of encoder and decoder."""
ALIKE = ("llama-int8", "qwen3-tied-int8", "gpt2-int4", "t5-int4", "bart-int8", "whisper-int8")
"""Slow tests: others load what they have."""


@pytest.mark.parametrize(
    ("family", "recipe"),
    [
        pytest.param(family, recipe, id=case, marks=[pytest.mark.slow] * (case in ALIKE))
        for family in FAMILIES
        for recipe in ("int8", *["int4"] * (family.name in IN_GROUPS))
        for case in [f"{family.name}-{recipe}"]
    ],
)
def test_a_family_is_as_quantize_dynamic_makes_it(
    family: Family,
    recipe: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    folder = checkpoint(family, tmp_path / "float")
    expected = quantize_dynamic(load(family, folder), recipe=recipe, inplace=True)
    made = load(family, folder, quantization_config=OctavoConfig(recipe))
    assert_alike(made, expected)
    assert report(made).layers == report(expected).layers
    assert report(made).notes == report(expected).notes
    assert report(made).model_bytes_before == report(expected).model_bytes_before

    made.save_pretrained(tmp_path / "int8", max_shard_size="60kB")
    assert len(list((tmp_path / "int8").glob("*.safetensors"))) > 1
    if family.name in RUN:
        assert_guarded(family, tmp_path / "int8", monkeypatch, caplog)
    caplog.clear()
    again = load(family, tmp_path / "int8")
    assert not caplog.records  # of a report on what does not fit
    assert_alike(again, made)
    assert report(again).layers == report(made).layers
    if family.name in RUN:
        inputs = family.inputs()
        assert torch.equal(outputs(made, inputs), outputs(expected, inputs))
        assert torch.equal(outputs(again, inputs), outputs(expected, inputs))


@pytest.mark.parametrize(("saved", "loaded"), [("Model", "ForMaskedLM"), ("ForMaskedLM", "Model")])
def test_other_heads_pass_over_the_guard_too(
    saved: str, loaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    folder = checkpoint(FAMILIES[0], tmp_path / "float")
    given = {"quantization_config": OctavoConfig()}
    made, again = (f"AutoModel{name.removeprefix('Model')}" for name in (saved, loaded))
    first = getattr(transformers, made).from_pretrained(folder, **given)
    first.save_pretrained(tmp_path / "int8")
    caplog.clear()
    second = getattr(transformers, again).from_pretrained(tmp_path / "int8")
    one, other = (of.base_model.encoder.layer[1].output.dense.packed for of in (first, second))
    assert torch.equal(one, other)
    assert "LOAD REPORT" in caplog.text  # the heads differ
    assert "octavo" not in caplog.text.replace("int8", "")
    assert "attention" not in caplog.text


@pytest.mark.parametrize(
    ("recipe", "dtype"),
    [
        ("int8-accurate", torch.float32),
        ("int8-per-tensor", torch.bfloat16),
        ("float16", torch.bfloat16),
    ],
    ids=str,
)
def test_other_recipes_and_dtypes_come_back(
    recipe: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    family = BY_NAME["t5"]
    folder = checkpoint(family, tmp_path / "float")
    made = load(family, folder, dtype=dtype, quantization_config=OctavoConfig(recipe))
    assert_alike(made, quantize_dynamic(load(family, folder, dtype=dtype), recipe=recipe))
    made.save_pretrained(tmp_path / "int8")
    again = load(family, tmp_path / "int8")
    assert_alike(again, made)
    assert again.dtype is dtype
    said = json.loads((tmp_path / "int8" / "config.json").read_text())["quantization_config"]
    assert (said["quant_method"], said["recipe"]) == ("octavo", recipe)
    buffers = dict(again.named_buffers(remove_duplicate=False))
    for alias, source in said["shared"].items():  # once in the file
        assert buffers[alias].data_ptr() == buffers[source].data_ptr()
    assert said["shared"]
