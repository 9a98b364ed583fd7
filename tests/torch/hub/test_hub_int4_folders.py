"""Folders of 4 bits that others wrote: GPTQ, AWQ and compressed-tensors keep their integers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.errors import ModelError
from octavo.torch import report
from octavo.torch.hub import OctavoConfig
from octavo.torch.layers.linear import QuantizedLinear
from tests.checkpoints.words import AWQ_ORDER, words
from tests.cli_support import run
from tests.torch.hub.families import FAMILIES, checkpoint, load, outputs

LLAMA = next(family for family in FAMILIES if family.name == "llama")
Tensors = dict[str, torch.Tensor]


def _rounded(w: Any, group: int, *, symmetric: bool) -> tuple[Any, Any, Any]:
    """q uint8 [n, k], zero uint8 and scale float16 [n, groups], plainly."""
    n, k = w.shape
    parts = w.reshape(n, -1, group or k)
    low, high = parts.min(axis=2), parts.max(axis=2)
    if symmetric:
        scale = (np.maximum(high, -low) / 7).astype(np.float16)
        zero = np.full(scale.shape, 8, np.uint8)
    else:
        scale = ((high - low) / 15).astype(np.float16)
        zero = np.rint(-low / scale).clip(1, 15).astype(np.uint8)
    steps = np.rint(parts / scale[..., None].astype(np.float32)) + zero[..., None]
    return steps.clip(0, 15).astype(np.uint8).reshape(n, k), zero, scale


def _exact(q: Any, zero: Any, scale: Any, group: int) -> Any:
    n, k = q.shape
    parts = q.reshape(n, -1, group or k).astype(np.float32) - zero[..., None]
    return (parts * scale.astype(np.float32)[..., None]).reshape(n, k)


def _gptq(q: Any, zero: Any, scale: Any, group: int, offset: int = 1) -> Tensors:
    return {
        "qweight": torch.from_numpy(words(q).T.copy()),
        "qzeros": torch.from_numpy(words((zero - offset).T.copy())),
        "scales": torch.from_numpy(scale.T.copy()),
        "g_idx": (torch.arange(q.shape[1]) // (group or q.shape[1])).int(),
    }


def _gptq_v2(q: Any, zero: Any, scale: Any, group: int) -> Tensors:
    return _gptq(q, zero, scale, group, 0)


def _awq(q: Any, zero: Any, scale: Any, group: int) -> Tensors:
    return {
        "qweight": torch.from_numpy(words(q.T.copy(), AWQ_ORDER)),
        "qzeros": torch.from_numpy(words(zero.T.copy(), AWQ_ORDER)),
        "scales": torch.from_numpy(scale.T.copy()),
    }


def _packed(q: Any, zero: Any, scale: Any, group: int) -> Tensors:
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    def signed(values: Any) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int8) - np.int8(8))

    found = {
        "weight_packed": pack_to_int32(signed(q), 4),
        "weight_scale": torch.from_numpy(scale),
        "weight_shape": torch.tensor(q.shape),
    }
    if not (zero == 8).all():
        found["weight_zero_point"] = pack_to_int32(signed(zero), 4, packed_dim=0)
    return found


def _compressed_config(group: int, *, symmetric: bool, inputs: bool = False) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "dynamic": False}
    weights |= {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
    entry = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    if inputs:
        entry["input_activations"] = {
            "num_bits": 8, "type": "int", "strategy": "token", "dynamic": True
        }  # fmt: skip
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": entry},
        "ignore": ["lm_head"],
    }


CASES: dict[str, tuple[Callable[..., Tensors], dict[str, Any], int, bool]] = {
    "gptq": (_gptq, {"quant_method": "gptq", "bits": 4, "sym": False, "group_size": 32}, 32, False),
    "gptq-symmetric": (
        _gptq,
        {"quant_method": "gptq", "bits": 4, "sym": True, "group_size": -1, "desc_act": True},
        0,
        True,
    ),
    "gptq-v2": (
        _gptq_v2,
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 32,
            "checkpoint_format": "gptq_v2",
        },
        32,
        False,
    ),
    "awq": (
        _awq,
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
        32,
        False,
    ),
    "compressed": (_packed, _compressed_config(32, symmetric=True), 32, True),
    "compressed-affine": (_packed, _compressed_config(32, symmetric=False), 32, False),
    "compressed-w4a8": (_packed, _compressed_config(0, symmetric=True, inputs=True), 0, True),
}


def written(folder: Path, case: str) -> tuple[Path, dict[str, Any]]:
    """A folder as another quantizer writes it, and what its integers stand for by layer."""
    pack, config, group, symmetric = CASES[case]
    path = checkpoint(LLAMA, folder)
    tensors, exact = {}, {}
    for name, tensor in load_file(path / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if not layer.endswith("_proj"):
            tensors[name] = tensor.clone()
            continue
        parts = _rounded(tensor.numpy(), group, symmetric=symmetric)
        tensors |= {f"{layer}.{key}": v for key, v in pack(*parts, group).items()}
        exact[layer] = _exact(*parts, group)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    data = json.loads((path / "config.json").read_text())
    data["quantization_config"] = config
    (path / "config.json").write_text(json.dumps(data))
    return path, exact


@pytest.mark.parametrize("case", CASES)
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
    assert (outputs(model, inputs) - expected).norm() < 0.02 * expected.norm()

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


def test_inputs_in_another_order_are_refused_by_name(tmp_path: Path) -> None:
    folder, _ = written(tmp_path / "theirs", "gptq")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.g_idx"
    tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj \(gptq\): .*desc_act"):
        load(LLAMA, folder, quantization_config=OctavoConfig())


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder, _ = written(tmp_path / "theirs", "awq")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.scales"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lack model\.layers\.1\.mlp\.up_proj\.scales"):
        load(LLAMA, folder, quantization_config=OctavoConfig())


@pytest.mark.parametrize("recipe", ["int4", "int4-128"])
def test_compressed_tensors_reads_what_octavo_wrote(recipe: str, tmp_path: Path) -> None:
    checkpoint(LLAMA, tmp_path / "float")
    config = OctavoConfig(recipe=recipe, format="compressed-tensors")
    model = load(LLAMA, tmp_path / "float", quantization_config=config)
    model.save_pretrained(tmp_path / "made")
    said = json.loads((tmp_path / "made" / "config.json").read_text())["quantization_config"]
    assert said["format"] == "pack-quantized"
    weights = said["config_groups"]["group_0"]["weights"]
    group = 128 if recipe == "int4-128" else 32
    assert (weights["num_bits"], weights["strategy"], weights["group_size"]) == (4, "group", group)

    ours = load(LLAMA, tmp_path / "made", quantization_config=OctavoConfig())
    inputs = LLAMA.inputs()
    assert torch.equal(outputs(ours, inputs), outputs(model, inputs))
    if recipe == "int4-128":  # theirs want whole groups, and this model has 64 and 96 inputs
        return
    theirs = outputs(load(LLAMA, tmp_path / "made"), inputs)  # by its own library, in float
    assert (outputs(model, inputs) - theirs).norm() < 0.02 * theirs.norm()


def test_groups_of_another_length_are_refused_by_name(tmp_path: Path) -> None:
    folder, _ = written(tmp_path / "theirs", "compressed")
    data = json.loads((folder / "config.json").read_text())
    data["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 48
    (folder / "config.json").write_text(json.dumps(data))
    with pytest.raises(ModelError, match=r"group_size is 48; Octavo reads multiples of 32"):
        load(LLAMA, folder, quantization_config=OctavoConfig())
