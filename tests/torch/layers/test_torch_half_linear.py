"""QuantizedHalfLinear: 16-bit weights, computed in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.errors import NotTrainableError
from octavo.recipe import PRESETS
from octavo.torch.layers.half_linear import QuantizedHalfLinear
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.qconfig import QConfig, float16_dynamic_qconfig
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.qconfig.observers import PlaceholderObserver
from octavo.torch.weight_choice import SchemeChoice, WeightChoice
from tests.torch.behaviour import (
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    every_float,
    in_another_process,
)

_BFLOAT16 = QConfig(activation=None, weight=PlaceholderObserver.with_args(dtype="bfloat16"))
CHOICES: dict[str, WeightChoice] = {
    "float16": SchemeChoice(PRESETS["float16"].default),
    "qconfig float16": QConfigChoice(float16_dynamic_qconfig),
    "qconfig bfloat16": QConfigChoice(_BFLOAT16),
}
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def made(
    choice: WeightChoice, k: int = 37, n: int = 21, *, bias: bool = True
) -> tuple[Any, nn.Linear]:
    torch.manual_seed(0)
    float_one = nn.Linear(k, n, bias=bias)
    layer = QuantizedLinear.from_float(float_one, choice)
    assert type(layer) is QuantizedHalfLinear
    return layer, float_one


def rows(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(shape)


@every_choice
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (21, 37), (130, 300)])
def test_it_computes_with_rounded_weights(choice: WeightChoice, bias: bool, n: int, k: int) -> None:
    layer, float_one = made(choice, k, n, bias=bias)
    w = float_one.weight.detach().to(getattr(torch, choice.storage)).double()
    assert_bits(layer.weight(), w.float())
    x = rows(5, k)
    y = x.double() @ w.t() + (float_one.bias.detach().double() if bias else 0)
    size = x.double().abs() @ w.abs().t() + 1
    assert ((layer(x) - y).abs() <= (k + 2) * 2**-24 * size).all()


@every_choice
@every_float
def test_every_dtype(choice: WeightChoice, dtype: torch.dtype) -> None:
    layer, _ = made(choice)
    x = rows(2, 3, 37).to(dtype)
    y = layer(x)
    assert_bits(y, layer(x.float()).to(dtype))
    assert_bits(layer(x.transpose(0, 1)), y.transpose(0, 1))
    assert_bits(layer(x[0, 0]), y[0, 0])
    assert layer(x[:0]).shape == (0, 3, 21)


@every_choice
def test_rows_do_not_touch_each_other(choice: WeightChoice) -> None:
    layer, _ = made(choice)
    x = rows(4, 37)
    y = layer(x)
    x[1] *= 100
    x[2, 5] = torch.inf
    x[3, 5] = torch.nan
    spoilt = layer(x)
    assert_bits(spoilt[0], y[0])
    assert spoilt[3].isnan().all()
    assert not spoilt[2].isfinite().any()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_sizes_of_zero() -> None:
    assert made(CHOICES["float16"], 5, 0)[0](torch.ones(2, 5)).shape == (2, 0)
    layer, float_one = made(CHOICES["float16"], 0, 5)
    assert_bits(layer(torch.ones(2, 0)), float_one(torch.ones(2, 0)).detach())


def test_errors() -> None:
    layer, float_one = made(CHOICES["float16"])
    with pytest.raises(ValueError, match=r"x: needs shape \[..., 37\], not \(2, 36\)"):
        layer(torch.ones(2, 36))
    with pytest.raises(TypeError, match=r"x: needs float32.*not int32"):
        layer(torch.ones(2, 37, dtype=torch.int32))
    with torch.no_grad():
        float_one.weight[1, 2] = 1e6
    with pytest.raises(ValueError, match=r"fc: w: 1 values are beyond float16.*take bfloat16"):
        QuantizedLinear.from_float(float_one, CHOICES["float16"], name="fc")
    x = rows(2, 37).requires_grad_()
    with pytest.raises(NotTrainableError, match="octavo::half_linear has no backward"):
        layer(x).sum().backward()


def test_a_weight_with_nan_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        model[1].weight[1, 2] = torch.nan
    with pytest.raises(ValueError, match="1: weight holds NaN or infinity"):
        octavo.torch.quantize_dynamic(model, dtype=torch.float16, inplace=True)
    assert [type(m) for m in model] == [nn.Linear, nn.Linear]


@every_choice
def test_surroundings(choice: WeightChoice) -> None:
    layer, _ = made(choice)
    assert_keeps_its_state(layer, rows(3, 37))
    assert_runs_in_graphs(layer, (rows(3, 37),), (rows(7, 37),))
    assert_threads_do_not_matter(made(choice, 512, 700)[0], rows(64, 512))


def test_another_process() -> None:
    layers = [made(choice)[0] for choice in CHOICES.values()]
    x = rows(3, 37)
    for layer, y in zip(layers, in_another_process(layers, [x] * 3), strict=True):
        assert_bits(y, layer(x))


def test_the_report_says_what_became_of_the_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    quantized = octavo.torch.quantize_dynamic(model, dtype=torch.float16)
    assert [type(m) for m in quantized] == [QuantizedHalfLinear, nn.ReLU, QuantizedHalfLinear]
    for outcome in octavo.torch.report(quantized).layers:
        assert outcome.scheme == "float16, weights only"
        assert outcome.bytes_after == outcome.bytes_before // 2
        assert 65 < outcome.sqnr_db < 80


def test_it_prints_what_it_is() -> None:
    layer, _ = made(CHOICES["qconfig bfloat16"], bias=False)
    assert repr(layer) == (
        "QuantizedHalfLinear(in_features=37, out_features=21, bias=False, bfloat16)"
    )
