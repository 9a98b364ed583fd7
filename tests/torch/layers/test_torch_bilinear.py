"""QuantizedBilinear against a float64 statement of its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.core.qparams import QType
from octavo.errors import NotTrainableError, OptionError
from octavo.recipe import ActivationScheme, Granularity, Kind, Scheme, WeightScheme
from octavo.torch import export_onnx, load, quantize_dynamic, report, save
from octavo.torch.layers.bilinear import QuantizedBilinear
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.weight_choice import DEFAULT, SchemeChoice, WeightChoice
from tests.core import statement
from tests.models import filled, operators, relative, run, seeded
from tests.torch.behaviour import (
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    every_float,
    in_another_process,
)

CHOICES: dict[str, WeightChoice] = {
    "default": DEFAULT,
    "per tensor": SchemeChoice(Scheme(WeightScheme(granularity=Granularity.TENSOR))),
    "affine": SchemeChoice(Scheme(WeightScheme(QType.INT8, symmetric=False))),
}
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
SIZES = [(1, 1, 1), (37, 5, 3), (24, 40, 16), (130, 3, 7)]
CLOSE = 0.02


def made(
    choice: WeightChoice = DEFAULT, sizes: tuple[int, int, int] = (37, 5, 3), *, bias: bool = True
) -> tuple[Any, nn.Bilinear]:
    torch.manual_seed(0)
    float_one = nn.Bilinear(*sizes, bias=bias)
    return QuantizedBilinear.from_float(float_one, choice), float_one


def given(layer: Any, *shape: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    scales = 10 ** torch.empty(*shape, 1).uniform_(-2, 2)
    x1 = torch.randn(*shape, layer.in1_features) * scales
    return x1, torch.randn(*shape, layer.in2_features)


class Pairs(nn.Module):
    """A linear layer, and a bilinear one over what it returns and a second input."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 24)
        self.pair = nn.Bilinear(24, 8, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.pair(torch.relu(self.up(x)), y)


# --- the numbers ---


@every_choice
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_it_computes_what_is_defined(
    choice: WeightChoice, sizes: tuple[int, int, int], bias: bool
) -> None:
    layer, _ = made(choice, sizes, bias=bias)
    x1, x2 = given(layer, 6)
    q, scale, zero = statement.quantize_rows(x1.numpy())
    steps = torch.from_numpy(q.astype(np.int64) - zero).double()
    w, wide = layer.weight().double(), x2.double()
    row = torch.from_numpy(scale).double().reshape(-1, 1)
    terms = torch.einsum("mi,nij,mj->mn", steps * row, w, wide)
    size = torch.einsum("mi,nij,mj->mn", (steps * row).abs(), w.abs(), wide.abs())
    shift = layer.bias.double() if bias else torch.zeros(1).double()
    y = layer(x1, x2)
    assert y.shape == (6, sizes[2])
    allowed = (sizes[1] + 6) * statement.EPS * (size + shift.abs()) + statement.TINY
    assert ((y - terms - shift).abs() <= allowed).all()


@every_choice
def test_it_is_near_torchs_layer(choice: WeightChoice) -> None:
    layer, float_one = made(choice, (64, 32, 48))
    x1, x2 = given(layer, 20)
    for row, want in zip(layer(x1, x2), float_one(x1, x2).detach(), strict=True):
        assert (row - want).norm() <= CLOSE * want.norm()


def test_the_weight_is_within_half_a_step() -> None:
    layer, float_one = made(sizes=(37, 5, 3))
    step = layer.scale.reshape(3, 1, 5)
    assert ((layer.weight - float_one.weight).abs() <= 0.501 * step).all()
    assert layer.integers().shape == (3, 37, 5)
    assert layer.integers().abs().amax(1).eq(127).all()  # a scale for each (output, second input)


def test_groups_of_inputs_have_scales_of_their_own() -> None:
    groups = ActivationScheme(granularity=Granularity.GROUP, group=128)
    choice = SchemeChoice(Scheme(WeightScheme(), groups))
    layer, float_one = made(choice, (256, 8, 5))
    plain, _ = made(DEFAULT, (256, 8, 5))
    x1, x2 = given(layer, 9)
    x1[:, :128] *= 100
    want = float_one(x1, x2).detach()
    assert layer.group == 128
    assert (layer(x1, x2) - want).norm() < (plain(x1, x2) - want).norm()


@every_float
def test_every_dtype_is_computed_in_float32_and_returned_in_kind(dtype: torch.dtype) -> None:
    layer, _ = made()
    x1, x2 = (x.to(dtype) for x in given(layer, 2, 3))
    y = layer(x1, x2)
    assert_bits(y, layer(x1.float(), x2.float()).to(dtype))
    assert_bits(layer(x1.transpose(0, 1), x2.transpose(0, 1)), y.transpose(0, 1))
    assert_bits(layer(x1[0, 0], x2[0, 0]), y[0, 0])
    assert layer(x1[:0], x2[:0]).shape == (0, 3, 3)


def test_rows_do_not_touch_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, _ = made(sizes=(37, 130, 9))
    x1, x2 = given(layer, 12)
    y = layer(x1, x2)
    assert_bits(layer(x1[3:4], x2[3:4]), y[3:4])
    monkeypatch.setattr("octavo.torch.layers.bilinear._AT_ONCE", 5000)
    assert_bits(layer(x1, x2), y)
    x1[1] *= 100
    x1[2, 5] = torch.nan
    x2[3, 5] = torch.inf
    spoilt = layer(x1, x2)
    assert_bits(spoilt[4:], y[4:])
    assert spoilt[2].isnan().all()
    assert not spoilt[3].isfinite().any()


# --- errors ---


@pytest.mark.parametrize(
    ("x1", "x2", "kind", "message"),
    [
        (torch.ones(2, 36), torch.ones(2, 5), ValueError, r"input1: needs shape \[..., 37\]"),
        (torch.ones(2, 37), torch.ones(2, 6), ValueError, r"input2: needs .* 5\], not \(2, 6\)"),
        (torch.ones(2, 37), torch.ones(3, 5), ValueError, r"input2: needs the axes of input1"),
        (torch.ones(2, 37), torch.ones(2, 5).half(), TypeError, "input2: is torch.float16; needs"),
        (torch.ones(2, 37).int(), torch.ones(2, 5), TypeError, "input1: needs float32.*not int32"),
    ],
    ids=["first", "second", "rows", "dtypes", "integers"],
)
def test_inputs_that_are_refused(
    x1: Tensor, x2: Tensor, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        made()[0](x1, x2)


def test_there_is_no_backward() -> None:
    layer, _ = made()
    x1, x2 = given(layer, 2)
    with pytest.raises(NotTrainableError, match="octavo::linear has no backward"):
        layer(x1.requires_grad_(), x2).sum().backward()


# --- what every layer stands ---


@every_choice
def test_surroundings(choice: WeightChoice) -> None:
    layer, _ = made(choice)
    assert_keeps_its_state(layer, *given(layer, 3))
    assert_runs_in_graphs(layer, given(layer, 3), given(layer, 7))
    large, _ = made(choice, (128, 16, 32))
    assert_threads_do_not_matter(large, *given(large, 64))


def test_another_process() -> None:
    layers = [made(choice)[0] for choice in CHOICES.values()]
    x1, x2 = given(layers[0], 3)
    pair = [_Joined(layer) for layer in layers]
    x = torch.cat([x1, x2], -1)
    for one, y in zip(pair, in_another_process(pair, [x] * 3), strict=True):
        assert_bits(y, one(x))


class _Joined(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[..., : self.layer.in1_features], x[..., self.layer.in1_features :])


def test_its_weight_can_be_written() -> None:
    layer, float_one = made()
    x1, x2 = given(layer, 4)
    layer.weight.data += 1.0
    with torch.no_grad():
        float_one.weight += 1.0
    want = float_one(x1, x2).detach()
    assert (layer(x1, x2) - want).norm() <= CLOSE * want.norm()


def test_it_prints_what_it_is() -> None:
    assert repr(made(CHOICES["affine"], bias=False)[0]) == (
        "QuantizedBilinear(in1_features=37, in2_features=5, out_features=3, bias=False, "
        "int8 affine)"
    )


# --- in models ---


def test_a_recipe_quantizes_it_and_the_report_says_so(tmp_path: Path) -> None:
    model = filled(Pairs())
    inspected = {d.layer.name: d for d in octavo.torch.inspect(model).decisions}
    layer = inspected["pair"].layer
    assert (layer.kind, layer.op) == (Kind.LINEAR, "Bilinear")
    assert layer.macs_per_row == 24 * 8 * 6
    assert not inspected["pair"].scheme.is_float
    quantized = quantize_dynamic(model, recipe="int8")
    assert type(quantized.pair) is QuantizedBilinear
    outcome = report(quantized).layers[1]
    assert outcome.quantized
    assert outcome.bytes_before == 24 * 8 * 6 * 4
    assert outcome.bytes_after < outcome.bytes_before / 2
    assert 35 < outcome.sqnr_db < 60
    x, y = seeded(5, 16), seeded(5, 8, seed=1)
    assert relative(quantized(x, y).numpy(), model(x, y).detach().numpy()) <= 2 * CLOSE
    save(quantized, tmp_path / "m.safetensors")
    assert_bits(load(tmp_path / "m.safetensors", Pairs)(x, y), quantized(x, y))


def test_it_is_float_where_torch_ao_has_it_float() -> None:
    quantized = quantize_dynamic(Pairs())
    assert [type(m) for m in quantized.children()] == [QuantizedLinear, nn.Bilinear]
    assert report(quantized).layers[1].reason == (
        "Bilinear is float by default, as in torch.ao; name it in qconfig_spec"
    )
    for spec in ({nn.Bilinear}, {"pair"}):
        assert type(quantize_dynamic(Pairs(), spec).pair) is QuantizedBilinear


def test_it_has_no_16_bits() -> None:
    quantized = quantize_dynamic(Pairs(), recipe="float16")
    assert report(quantized).layers[1].reason == (
        "Octavo has no float16 bilinear layer; its weights are int8"
    )


def test_a_weight_with_nan_leaves_the_model_as_it_was() -> None:
    model = Pairs()
    with torch.no_grad():
        model.pair.weight[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match="pair: weight holds NaN or infinity"):
        quantize_dynamic(model, recipe="int8", inplace=True)
    assert type(model.up) is nn.Linear


def test_a_qconfig_along_another_axis_is_refused() -> None:
    from octavo.torch.qconfig import PerChannelMinMaxObserver, QConfig

    weight = PerChannelMinMaxObserver.with_args(
        dtype="int8", qscheme="per_channel_symmetric", ch_axis=1
    )
    with pytest.raises(OptionError, match="ch_axis=1"):
        quantize_dynamic(Pairs(), {nn.Bilinear: QConfig(activation=None, weight=weight)})


@pytest.mark.parametrize("target", ["portable", "native"])
def test_it_is_exported(tmp_path: Path, target: str) -> None:
    model = quantize_dynamic(filled(Pairs()), recipe="int8")
    args = seeded(5, 16), seeded(5, 8, seed=1)
    exported = export_onnx(model, args, tmp_path / "m.onnx", target)
    assert exported.operators == {"linear": 2}
    (y,) = run(tmp_path / "m.onnx", *args)
    assert relative(y, model(*args).numpy()) <= (2e-6 if target == "native" else 2 * CLOSE)
    assert ("MatMulInteger" in " ".join(operators(tmp_path / "m.onnx"))) is (target == "portable")
