"""Folders of 4 bits that others wrote: GPTQ, AWQ and compressed-tensors keep their integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.errors import AlreadyQuantizedError, ModelError, OptionError
from octavo.recipe import Recipe
from octavo.torch import report
from octavo.torch.hub import OctavoConfig
from octavo.torch.hub.checkpoint import find_checkpoint
from octavo.torch.layers.linear import QuantizedLinear
from tests.cli_support import run
from tests.models import relative
from tests.torch.hub.families import checkpoint, load, outputs
from tests.torch.hub.int4_folders import CASES, LLAMA, as_of_old, written

ALIKE = ("gptq-symmetric", "compressed-affine")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] * (c in ALIKE)) for c in CASES]
)
def test_layers_hold_the_integers_of_the_folder(case: str, tmp_path: Path) -> None:
    folder, exact = written(tmp_path / "theirs", case)
    model = load(LLAMA, folder, quantization_config=OctavoConfig())
    layers = {n: m for n, m in model.named_modules() if isinstance(m, QuantizedLinear)}
    assert layers.keys() == exact.keys()
    for name, layer in layers.items():
        found = (layer.weight() + 0).numpy()
        np.testing.assert_allclose(found, exact[name], rtol=1e-6, err_msg=name)
        assert layer.group == (0 if case == "compressed-w4a8" else layer._format.group)
        assert layer._format.affine == (not CASES[case][3])
    assert {o.layer.name for o in report(model).quantized} == exact.keys()

    float_model = load(LLAMA, checkpoint(LLAMA, tmp_path / "float"))
    for name, weight in exact.items():
        float_model.get_submodule(name).weight.data = torch.from_numpy(weight)
    inputs = LLAMA.inputs()
    expected = outputs(float_model, inputs)
    assert relative(outputs(model, inputs), expected) < 0.02

    model.save_pretrained(tmp_path / "ours")
    again = load(LLAMA, tmp_path / "ours")
    assert torch.equal(outputs(again, inputs), outputs(model, inputs))


def test_the_command_keeps_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = written(tmp_path / "theirs", "gptq")
    assert run("quantize", str(folder), "-o", str(tmp_path / "out")) == 0
    out, _ = capsys.readouterr()
    assert "weights are those of a folder of gptq" in out
    made = load(LLAMA, tmp_path / "out")
    expected = load(LLAMA, folder, quantization_config=OctavoConfig())
    inputs = LLAMA.inputs()
    assert torch.equal(outputs(made, inputs), outputs(expected, inputs))


def test_scales_beyond_float16_are_written_whole(tmp_path: Path) -> None:
    small, name = LLAMA.make(), "model.layers.0.self_attn.q_proj"
    with torch.no_grad():
        small.get_submodule(name).weight[3] *= 1e-5
    small.save_pretrained(tmp_path / "float")
    config = OctavoConfig(recipe="int4", format="compressed-tensors")
    model = load(LLAMA, tmp_path / "float", quantization_config=config)
    model.save_pretrained(tmp_path / "made")
    again = load(LLAMA, tmp_path / "made", quantization_config=OctavoConfig())
    made, expected = (of.get_submodule(name).weight()[3] for of in (again, model))
    torch.testing.assert_close(made, expected, rtol=1e-6, atol=0)


def _reversed(tensors: Any) -> None:
    tensors["model.layers.1.mlp.up_proj.g_idx"] = torch.arange(63, -1, -1).int() // 32


def _less(tensors: Any) -> None:
    del tensors["model.layers.1.mlp.up_proj.scales"]


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("gptq", _reversed, r"layers\.1\.mlp\.up_proj \(gptq\): .*desc_act"),
        ("awq", _less, r"lack model\.layers\.1\.mlp\.up_proj\.scales"),
    ],
)
def test_tensors_that_make_no_weight_are_named(
    case: str, change: Any, message: str, tmp_path: Path
) -> None:
    folder, _ = written(tmp_path / "theirs", case)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=message):
        load(LLAMA, folder, quantization_config=OctavoConfig())


def test_groups_of_another_length_are_refused_by_name(tmp_path: Path) -> None:
    folder, _ = written(tmp_path / "theirs", "compressed")
    data = json.loads((folder / "config.json").read_text())
    data["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 48
    (folder / "config.json").write_text(json.dumps(data))
    with pytest.raises(ModelError, match="group_size is 48"):
        load(LLAMA, folder, quantization_config=OctavoConfig())


@pytest.mark.parametrize(
    ("case", "by"),
    [("gptq", "gptq"), ("awq", "awq"), ("compressed-w4a8", "compressed-tensors")],
)
def test_a_mix_says_nothing_of_integers_that_stay(case: str, by: str, tmp_path: Path) -> None:
    folder, exact = written(tmp_path / "theirs", case)
    limited = Recipe.from_dict({"base": "int4-mixed", "mix": {"bits": 5}})
    with pytest.raises(OptionError, match=rf"keeps the integers of {by}: leave them out"):
        load(LLAMA, folder, quantization_config=OctavoConfig(recipe=limited))
    model = load(LLAMA, folder, quantization_config=OctavoConfig(recipe="int4-mixed"))
    assert {o.layer.name for o in report(model).quantized} >= exact.keys()


@pytest.mark.parametrize(
    ("case", "file"), [("gptq", "quantize_config.json"), ("awq", "quant_config.json")]
)
def test_folders_of_older_tools_are_known_by_their_tensors(
    case: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, exact = written(tmp_path / "theirs", case)
    as_of_old(folder, file)
    model = load(LLAMA, folder, quantization_config=OctavoConfig())
    for name, weight in exact.items():
        found = (model.get_submodule(name).weight() + 0).numpy()
        np.testing.assert_allclose(found, weight, rtol=1e-6, err_msg=name)
    model.save_pretrained(tmp_path / "ours")
    inputs = LLAMA.inputs()
    assert torch.equal(outputs(load(LLAMA, tmp_path / "ours"), inputs), outputs(model, inputs))
    assert run("quantize", str(folder), "-o", str(tmp_path / "out")) == 0
    assert f"weights are those of a folder of {case}" in capsys.readouterr().out
    with pytest.raises(AlreadyQuantizedError, match=f"was quantized by {case}"):
        find_checkpoint(folder).load()
    (folder / file).unlink()
    for call in (
        lambda: load(LLAMA, folder, quantization_config=OctavoConfig()),
        find_checkpoint(folder).load,
    ):
        with pytest.raises(ModelError, match=r"holds .*\.qweight, .*neither its config\.json"):
            call()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("packing_format", "auto_round:auto_gptq_marlin"),
        ("packing_format", None),
        ("data_type", "mx_fp"),
        ("extra_config", {"model.layers.1.mlp.up_proj": {"bits": 8}}),
    ],
)
def test_what_else_auto_round_says_is_refused_by_name(
    field: str, value: Any, tmp_path: Path
) -> None:
    folder, _ = written(tmp_path / "theirs", "auto-round")
    data = json.loads((folder / "config.json").read_text())
    data["quantization_config"][field] = value
    (folder / "config.json").write_text(json.dumps(data))
    with pytest.raises(ModelError, match=rf"auto-round: {field}"):
        load(LLAMA, folder, quantization_config=OctavoConfig())


@pytest.mark.parametrize(
    ("case", "note"),
    [
        ("auto-round", "auto-round packed them as gptq does"),
        ("auto-round-awq", "auto-round packed them as awq does"),
        ("compressed-cache", "its kv_cache_scheme is not followed"),
    ],
)
def test_what_is_read_otherwise_is_noted(case: str, note: str, tmp_path: Path) -> None:
    folder, _ = written(tmp_path / "theirs", case)
    model = load(LLAMA, folder, quantization_config=OctavoConfig())
    assert any(found.startswith(note) for found in report(model).notes)
