"""Folders of compressed-tensors, written by its own package and by us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import ModelError
from octavo.torch import report
from octavo.torch.hub import OctavoConfig
from octavo.torch.hub.compressed_scheme import CompressedConfig
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import relative
from tests.torch.hub.families import LLAMA, checkpoint, load, outputs


def arguments(**given: Any) -> dict[str, Any]:
    return {"num_bits": 8, "type": "int", "symmetric": True} | given


def scheme(**weights: Any) -> dict[str, Any]:
    return {
        "targets": ["Linear"],
        "weights": arguments(strategy="channel", dynamic=False) | weights,
        "input_activations": arguments(strategy="token", dynamic=True),
    }


def written_by_the_package(folder: Path, **weights: Any) -> tuple[Path, dict[str, Any]]:
    """A folder, and the float model that its package computes with its weights."""
    quantization = pytest.importorskip("compressed_tensors.quantization")
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization.utils.helpers import calculate_qparams

    model = load(LLAMA, checkpoint(LLAMA, folder / "float"))
    config = quantization.QuantizationConfig(
        config_groups={"group_0": quantization.QuantizationScheme(**scheme(**weights))},
        ignore=["lm_head"],
        quantization_status="frozen",
    )
    quantization.apply_quantization_config(model, config)
    dense: dict[str, Any] = {}
    for name, module in model.named_modules():
        found = getattr(module, "quantization_scheme", None)
        if found is not None:
            rows = module.weight.amin(1, keepdim=True), module.weight.amax(1, keepdim=True)
            if found.weights.strategy == "tensor":
                rows = rows[0].amin().reshape(1), rows[1].amax().reshape(1)
            scale, zero = calculate_qparams(*rows, found.weights)
            module.weight_scale.data = scale
            if hasattr(module, "weight_zero_point"):
                module.weight_zero_point.data = zero.round().to(module.weight_zero_point.dtype)
            zero = zero.round()
            q = (module.weight / scale + zero).round().clamp(-128, 127)
            dense[name] = ((q - zero) * scale).detach()
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder / "compressed")
    compressor.update_config(folder / "compressed")
    return folder / "compressed", dense


@pytest.mark.parametrize(
    "weights",
    [{}, {"symmetric": False}, {"strategy": "tensor"}],
    ids=["per-channel", "with-zero-points", "per-tensor"],
)
def test_weights_are_those_that_the_package_wrote(tmp_path: Path, weights: dict[str, Any]) -> None:
    folder, dense = written_by_the_package(tmp_path, **weights)
    assert json.loads((folder / "config.json").read_text())["quantization_config"]
    model = load(LLAMA, folder, quantization_config=OctavoConfig())
    layers = {n: m for n, m in model.named_modules() if isinstance(m, QuantizedLinear)}
    assert layers.keys() == dense.keys()
    for name, layer in layers.items():
        assert torch.allclose(layer.weight(), dense[name], rtol=1e-6, atol=0), name
    assert {o.layer.name for o in report(model).quantized} == dense.keys()
    expected = load(LLAMA, tmp_path / "float")
    inputs = LLAMA.inputs()
    assert relative(outputs(model, inputs), outputs(expected, inputs)) < 0.05

    model.save_pretrained(tmp_path / "octavo")  # mapped from here on
    again = load(LLAMA, tmp_path / "octavo")
    assert torch.equal(outputs(again, inputs), outputs(model, inputs))
    assert report(again).layers == report(model).layers


GROUPS = {"int8": None, "int4": 32, "int4-128": 128}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("recipe", GROUPS)
def test_the_package_reads_what_octavo_wrote(recipe: str, tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors")
    checkpoint(LLAMA, tmp_path / "float")
    config = OctavoConfig(recipe=recipe, format="compressed-tensors")
    model = load(LLAMA, tmp_path / "float", quantization_config=config)
    reasons = {o.layer.name: o.reason for o in report(model).left_float}
    assert reasons.keys() == {"lm_head", "model.embed_tokens"}
    model.save_pretrained(tmp_path / "compressed")
    said = json.loads((tmp_path / "compressed" / "config.json").read_text())["quantization_config"]
    assert said["quant_method"] == "compressed-tensors"
    assert said["ignore"] == ["lm_head"]
    weights = said["config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["group_size"]) == (int(recipe[3]), GROUPS[recipe])

    ours = load(LLAMA, tmp_path / "compressed", quantization_config=OctavoConfig())
    inputs = LLAMA.inputs()
    assert torch.equal(outputs(ours, inputs), outputs(model, inputs))
    if recipe == "int4-128":  # theirs want whole groups, and this model has 64 and 96 inputs
        return
    theirs = load(LLAMA, tmp_path / "compressed")  # by its own library, in float
    assert relative(outputs(model, inputs), outputs(theirs, inputs)) < 0.02
    for name, layer in model.named_modules():
        if isinstance(layer, QuantizedLinear):
            dense = theirs.get_submodule(name).weight
            assert torch.allclose(layer.weight(), dense, rtol=1e-6, atol=0), name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (scheme(num_bits=4), r"group_0\.weights\.num_bits is 4"),
        (scheme(type="float"), r"group_0\.weights\.type is 'float'"),
        (scheme(strategy="group", group_size=128), r"group_0\.weights\.group_size is 128"),
        (scheme(strategy="block"), r"group_0\.weights\.strategy is 'block'"),
        ({"input_activations": None}, r"input_activations is None"),
        ({"input_activations": arguments(strategy="tensor", dynamic=True)}, "is 'tensor'"),
        ({"input_activations": arguments(strategy="token", dynamic=False)}, "dynamic is False"),
        ({"output_activations": arguments()}, "output_activations is "),
        ({"format": "float-quantized"}, "format is 'float-quantized'"),
    ],
    ids=["int4", "float8", "groups", "blocks", "no-x", "tensor", "static", "outputs", "float8-x"],
)
def test_other_schemes_are_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        CompressedConfig.from_dict({"config_groups": {"group_0": scheme() | changed}})


def test_targets_and_ignored_layers_may_be_names_and_regular_expressions() -> None:
    group = scheme() | {"targets": ["re:.*q_proj", "model.down"]}
    config = CompressedConfig.from_dict({"config_groups": {"g": group}, "ignore": ["re:.*9.*"]})
    assert config.stored("layers.0.q_proj", "Linear") is not None
    assert config.stored("model.down", "Linear") is not None
    assert config.stored("layers.9.q_proj", "Linear") is None
    assert config.stored("layers.0.k_proj", "Linear") is None
