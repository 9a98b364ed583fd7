"""Linear layers with weights of four and eight bits in groups, and who else is asked for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

import octavo.torch
from octavo.core.group_rounding import round_groups
from octavo.core.kernels import PackedWeight, WeightFormat
from octavo.core.linear import Linear as Kernel
from octavo.core.qparams import QType
from octavo.errors import ModelError, NotTrainableError
from octavo.recipe import ActivationScheme, Granularity, Recipe, Scheme, WeightScheme
from octavo.torch.files.safetensors import read_metadata
from octavo.torch.layers.attention import run_with_one_input
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear
from tests.torch.behaviour import (
    assert_bits,
    assert_close,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    every_float,
    quiet,
)

FORMATS = ("int4-32", "int4-64-affine", "int4-128", "int8-32", "int8-128-affine")
every_format = pytest.mark.parametrize("name", FORMATS)
SHAPES = ((33, 64), (16, 100), (5, 20), (64, 300))  # outputs, inputs


def scheme_of(name: str, group: int | None = None) -> Scheme:
    """The scheme of a format; rows have one scale each (None), or one for each group."""
    held = WeightFormat.parse(name)
    weight = WeightScheme(
        QType.INT4 if held.bits == 4 else QType.INT8,
        Granularity.BLOCK,
        symmetric=not held.affine,
        observer="search",
        block=held.group,
    )
    if group is None:
        return Scheme(weight)
    return Scheme(weight, ActivationScheme(granularity=Granularity.GROUP, group=group))


def quantized(layer: nn.Module, scheme: Scheme) -> Any:
    model = octavo.torch.quantize_dynamic(nn.Sequential(layer), recipe=Recipe("custom", scheme))
    return model[0]


def outcome(model: nn.Module) -> Any:
    (found,) = octavo.torch.report(model).layers
    return found


def rows(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def linear(n: int = 33, k: int = 100, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(k, n, bias=bias)


@every_format
@pytest.mark.parametrize("by_group", [False, True], ids=["row", "group"])
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_a_layer_is_the_kernel_over_its_rounded_weight(
    name: str, by_group: bool, n: int, k: int
) -> None:
    held = WeightFormat.parse(name)
    group = held.group if by_group else 0
    source = linear(n, k)
    layer = quantized(source, scheme_of(name, group or None))
    assert type(layer) is QuantizedLinear
    assert (layer.format, layer.group) == (name, group)
    rounded = round_groups(source.weight.detach(), held).weight
    weight = PackedWeight(rounded.pack(), n, k, rounded.channel_scale, None, group, held)
    expected = Kernel(weight, source.bias.detach().numpy())(rows(4, k))
    assert_bits(layer(rows(4, k)), torch.as_tensor(expected))
    assert_bits(layer.weight(), torch.from_numpy(rounded.dequantize()))
    assert_bits(layer.integers(), torch.from_numpy(rounded.q))
    assert_close(layer(rows(4, k)), source(rows(4, k)).detach(), 0.15 if held.bits == 4 else 0.02)


@every_format
@every_float
def test_a_layer_keeps_its_state_and_the_dtype(name: str, dtype: torch.dtype) -> None:
    layer = quantized(linear(), scheme_of(name, WeightFormat.parse(name).group))
    assert layer(rows(3, 100).to(dtype)).dtype is dtype
    if dtype is torch.float32:
        assert_keeps_its_state(layer, rows(3, 100))
        assert_threads_do_not_matter(layer, rows(40, 100))


def test_a_row_does_not_depend_on_the_batch() -> None:
    layer, x = quantized(linear(), scheme_of("int4-32", 32)), rows(2, 9, 100)
    alone = torch.stack([torch.cat([layer(x[i, j : j + 1]) for j in range(9)]) for i in range(2)])
    assert_bits(layer(x), alone)


@pytest.mark.parametrize("name", ["int4-32", "int8-64-affine"])
def test_a_layer_runs_compiled_exported_and_traced(name: str) -> None:
    layer = quantized(linear(), scheme_of(name))
    assert_runs_in_graphs(layer, (rows(4, 100),), (rows(7, 100),))
    scripted = quiet(torch.jit.script)(layer)
    assert_bits(scripted(rows(4, 100)), layer(rows(4, 100)))


def test_a_layer_says_what_it_is() -> None:
    layer = quantized(linear(), scheme_of("int4-64-affine", 64))
    assert repr(layer) == (
        "QuantizedLinear(in_features=100, out_features=33, bias=True, int4-64-affine, "
        "activation groups of 64)"
    )
    assert layer.config()["format"] == "int4-64-affine"
    assert layer.groups().format is WeightFormat.INT4_64_AFFINE


def test_layers_of_int8_say_nothing_new() -> None:
    layer = quantized(linear(), Scheme())
    assert set(layer.config()) == {"in_features", "out_features", "has_bias", "affine", "group"}
    assert "format" not in repr(layer)
    with pytest.raises(ModelError, match="format is int8: it has no groups"):
        layer.groups()


def test_a_layer_pickled_before_formats_is_int8() -> None:
    layer = quantized(linear(), Scheme())
    expected = layer(rows(2, 100))
    del layer.__dict__["format"]
    assert_bits(layer(rows(2, 100)), expected)
    assert layer.config() == quantized(linear(), Scheme()).config()


@pytest.mark.parametrize(("recipe", "version"), [("int8", 1), ("int4", 2)])
def test_a_file_is_for_those_who_know_its_formats(
    recipe: str, version: int, tmp_path: Path
) -> None:
    model = octavo.torch.quantize_dynamic(nn.Sequential(linear()), recipe=recipe)
    octavo.torch.save(model, tmp_path / "m.safetensors")
    said = json.loads(read_metadata(tmp_path / "m.safetensors")["octavo"])
    assert said["format"] == version
    assert ("format" in said["layers"]["0"]["config"]) == (version > 1)


@every_format
def test_a_conv1d_of_transformers_is_held_so(name: str) -> None:
    torch.manual_seed(0)
    source = Conv1D(33, 100)
    other = linear()
    other.weight = nn.Parameter(source.weight.detach().t().contiguous())
    other.bias = source.bias
    layer, expected = (quantized(one, scheme_of(name)) for one in (source, other))
    assert_bits(layer(rows(3, 100)), expected(rows(3, 100)))
    assert_bits(layer.weight(), expected.weight().t())


def test_the_report_counts_all_bytes() -> None:
    model = octavo.torch.quantize_dynamic(nn.Sequential(linear(64, 256, bias=False)), recipe="int4")
    report = octavo.torch.report(model)
    (found,) = report.layers
    held = model[0].packed.nbytes + model[0].scale.nbytes
    assert found.bytes_after == held
    assert found.scheme == "int4 per block of 32, activations per group of 32"
    assert found.sqnr_db is not None
    assert 18 < found.sqnr_db < 26
    bits = 8 * held / (64 * 256)
    assert report.bits_per_weight == pytest.approx(bits)
    assert f"{bits:.2g} bits a weight" in str(report)


def test_a_report_of_int8_says_no_bits() -> None:
    model = octavo.torch.quantize_dynamic(nn.Sequential(linear(64, 256)))
    assert "bits a weight" not in str(octavo.torch.report(model))


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
    model = octavo.torch.quantize_dynamic(nn.Sequential(linear()), recipe=Recipe("custom", scheme))
    assert (outcome(model).scheme, outcome(model).notes) == (held, (note,))


OTHERS: dict[str, Any] = {
    "conv": (lambda: nn.Conv2d(8, 8, 3), (1, 8, 9, 9)),
    "lstm": (lambda: nn.LSTM(16, 16), (3, 1, 16)),
    "gru cell": (lambda: nn.GRUCell(16, 16), (2, 16)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_layers_without_groups_are_int8_and_say_so(case: str) -> None:
    make, shape = OTHERS[case]
    torch.manual_seed(0)
    model = quantized_whole(nn.Sequential(make()))
    assert isinstance(model[0], QuantizedModule)
    (found,) = {o.notes for o in octavo.torch.report(model).layers}
    assert found[0].startswith("weights per channel, not per block of 32; int8 weights, not int4")
    model(rows(*shape))


def quantized_whole(model: nn.Module) -> Any:
    return octavo.torch.quantize_dynamic(model, recipe=Recipe("all", scheme_of("int4-32")))


def test_a_float_weight_that_is_not_finite_is_named() -> None:
    model = nn.Sequential(linear())
    with torch.no_grad():
        model[0].weight[3, 4] = float("nan")
    with pytest.raises(ValueError, match=r"^0: weight.* NaN"):
        octavo.torch.quantize_dynamic(model, recipe="int4")


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
    x = rows(2, 5, 64)
    model = quantized_whole(attention)
    (y, _), (z, _) = model(x, x, x), attention(x, x, x)
    assert_close(y, z.detach(), 0.3)
    assert {model.q_proj.format, model.k_proj.format, model.out_proj.format} == {"int4-32"}
    octavo.torch.save(model, tmp_path / "m.safetensors")
    again = octavo.torch.load(
        tmp_path / "m.safetensors", lambda: nn.MultiheadAttention(64, 4, batch_first=True)
    )
    assert_bits(again(x, x, x)[0], y)


def test_layers_of_other_formats_do_not_share_their_inputs() -> None:
    """Of 128 inputs int8 has zero points, and groups of four bits have none."""
    torch.manual_seed(0)
    model = octavo.torch.quantize_dynamic(
        nn.MultiheadAttention(256, 4, batch_first=True), recipe="int8-accurate"
    )
    x = rows(2, 5, 256)
    layers = [model.q_proj, quantized(nn.Linear(256, 64), scheme_of("int4-128", 128))]
    for found, layer in zip(run_with_one_input(layers, x), layers, strict=True):
        assert_bits(found, layer(x))
