"""Linear layers with weights of four and eight bits in groups, and who else is asked for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn

from octavo.core.group_rounding import round_groups
from octavo.core.kernels import PackedWeight, WeightFormat
from octavo.core.linear import Linear as Kernel
from octavo.core.qparams import QType
from octavo.errors import ModelError, NotTrainableError
from octavo.recipe import ActivationScheme, Granularity, Recipe, Scheme, WeightScheme
from octavo.torch import load, quantize_dynamic, report, save
from octavo.torch.files.safetensors import read_metadata
from octavo.torch.layers.attention import run_with_one_input
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import assert_bits, quiet, seeded
from tests.torch.behaviour import assert_close
from tests.torch.layers.cases import FORMATS, scheme_of

SHAPES = ((33, 64), (16, 100), (5, 20), (64, 300))  # outputs, inputs


def whole(model: nn.Module, scheme: Scheme) -> Any:
    return quantize_dynamic(model, recipe=Recipe("custom", scheme))


def quantized(layer: nn.Module, scheme: Scheme) -> Any:
    return whole(nn.Sequential(layer), scheme)[0]


def linear(n: int = 33, k: int = 100, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(k, n, bias=bias)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("by_group", [False, True], ids=["row", "group"])
def test_a_layer_is_the_kernel_over_its_rounded_weight(name: str, by_group: bool) -> None:
    held = WeightFormat.parse(name)
    group = held.group if by_group else 0
    for n, k in SHAPES:
        source, x = linear(n, k), seeded(4, k)
        layer = quantized(source, scheme_of(name, group or None))
        assert type(layer) is QuantizedLinear
        assert (layer.format, layer.group) == (name, group)
        rounded = round_groups(source.weight.detach(), held).weight
        weight = PackedWeight(rounded.pack(), n, k, rounded.channel_scale, None, group, held)
        expected = Kernel(weight, source.bias.detach().numpy())(x)
        assert_bits(layer(x), torch.as_tensor(expected))
        assert_bits(layer.weight(), torch.from_numpy(rounded.dequantize()))
        assert_bits(layer.integers(), torch.from_numpy(rounded.q))
        assert_close(layer(x), source(x).detach(), 0.15 if held.bits == 4 else 0.02)


def test_a_layer_says_what_it_is() -> None:
    layer = quantized(linear(), scheme_of("int4-64-affine", 64))
    assert "int4-64-affine, activation groups of 64" in repr(layer)
    assert layer.config()["format"] == "int4-64-affine"
    assert layer.groups().format is WeightFormat.INT4_64_AFFINE
    scripted, x = quiet(torch.jit.script)(layer), seeded(4, 100)
    assert_bits(scripted(x), layer(x))


def test_layers_of_int8_say_nothing_new() -> None:
    layer, x = quantized(linear(), Scheme()), seeded(2, 100)
    config, expected = layer.config(), layer(x)
    assert set(config) == {"in_features", "out_features", "has_bias", "affine", "group"}
    assert "format" not in repr(layer)
    with pytest.raises(ModelError, match="format is int8"):
        layer.groups()
    del layer.__dict__["format"]  # as in pickles from before there were formats
    assert_bits(layer(x), expected)
    assert layer.config() == config


@pytest.mark.parametrize(("recipe", "version"), [("int8", 1), ("int4", 2)])
def test_a_file_is_for_those_who_know_its_formats(
    recipe: str, version: int, tmp_path: Path
) -> None:
    save(quantize_dynamic(nn.Sequential(linear()), recipe=recipe), tmp_path / "m.safetensors")
    said = json.loads(read_metadata(tmp_path / "m.safetensors")["octavo"])
    assert said["format"] == version
    assert ("format" in said["layers"]["0"]["config"]) == (version > 1)


def test_the_report_counts_all_bytes() -> None:
    model = quantize_dynamic(nn.Sequential(linear(64, 256, bias=False)), recipe="int4")
    told = report(model)
    (found,) = told.layers
    held = model[0].packed.nbytes + model[0].scale.nbytes
    assert found.bytes_after == held
    assert found.scheme == "int4 per block of 32, activations per group of 32"
    assert found.sqnr_db is not None
    assert 18 < found.sqnr_db < 26
    bits = 8 * held / (64 * 256)
    assert told.bits_per_weight == pytest.approx(bits)
    assert f"{bits:.2g} bits a weight" in str(told)
    assert "bits a weight" not in str(report(quantize_dynamic(nn.Sequential(linear(64, 256)))))


ASKED = {
    "activations in float": (
        replace(scheme_of("int4-32"), activation=None),
        "int4 per block of 32, activations per group of 32",
        "activations per group of 32, not in float",
    ),
    "activations per tensor": (
        replace(scheme_of("int4-32"), activation=ActivationScheme(granularity=Granularity.TENSOR)),
        "int4 per block of 32, activations per row",
        "activations per row (uint8), not per tensor (uint8)",
    ),
    "other groups": (
        scheme_of("int4-64", 128),
        "int4 per block of 64, activations per group of 64",
        "activations per group of 64, not per group of 128",
    ),
    "blocks of 256": (
        Scheme(WeightScheme(granularity=Granularity.BLOCK, block=256)),
        "int8 per block of 128, activations per row",
        "weights per block of 128, not of 256",
    ),
    "uint8": (
        Scheme(WeightScheme(QType.UINT8, Granularity.BLOCK, block=32, reduce_range=True)),
        "int8 per block of 32, activations per row",
        "8 bits, not 7; int8 weights, not uint8",
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_kernels_lack_is_the_nearest_and_said(case: str) -> None:
    scheme, held, note = ASKED[case]
    (found,) = report(whole(nn.Sequential(linear()), scheme)).layers
    assert (found.scheme, found.notes) == (held, (note,))


OTHERS: dict[str, Any] = {
    "conv": (lambda: nn.Conv2d(8, 8, 3), (1, 8, 9, 9)),
    "lstm": (lambda: nn.LSTM(16, 16), (3, 1, 16)),
    "gru cell": (lambda: nn.GRUCell(16, 16), (2, 16)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_layers_without_groups_are_int8_and_say_so(case: str) -> None:
    make, shape = OTHERS[case]
    model = whole(nn.Sequential(make()), scheme_of("int4-32"))
    assert isinstance(model[0], QuantizedModule)
    ((note,),) = {o.notes for o in report(model).layers}
    assert "not per block of 32; int8 weights, not int4" in note
    model(seeded(*shape))


def test_a_weight_that_is_written_is_held_or_refused() -> None:
    layer = quantized(linear(), scheme_of("int4-32"))
    before = layer.weight()
    layer.weight.data *= 2.0
    assert_bits(layer.weight(), before * 2.0)
    with pytest.raises(NotTrainableError, match="of what was written"):
        layer.weight.data += 1e-4
    assert_bits(layer.weight(), before * 2.0)


def test_attention_holds_its_projections_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(64, 4, batch_first=True)
    x, path = seeded(2, 5, 64), tmp_path / "m.safetensors"
    model = whole(attention, scheme_of("int4-32"))
    (y, _), (z, _) = model(x, x, x), attention(x, x, x)
    assert_close(y, z.detach(), 0.3)
    assert {model.q_proj.format, model.k_proj.format, model.out_proj.format} == {"int4-32"}
    save(model, path)
    with safe_open(path, "pt") as file:  # what releases refuse that know int8 alone
        assert json.loads(file.metadata()["octavo"])["format"] == 2
    again = load(path, lambda: nn.MultiheadAttention(64, 4, batch_first=True))
    assert_bits(again(x, x, x)[0], y)


def test_layers_of_other_formats_do_not_share_their_inputs() -> None:
    """Of 128 inputs int8 has zero points, and groups of four bits have none."""
    model: Any = quantize_dynamic(
        nn.MultiheadAttention(256, 4, batch_first=True), recipe="int8-accurate"
    )
    x = seeded(2, 5, 256)
    layers = [model.q_proj, quantized(nn.Linear(256, 64), scheme_of("int4-128", 128))]
    for found, layer in zip(run_with_one_input(layers, x), layers, strict=True):
        assert_bits(found, layer(x))
