"""Which convolutions recipes quantize in PyTorch models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from octavo.recipe import FLOAT, Kind, Rule, preset
from octavo.recipe.convolutions import Place
from octavo.torch import inspect, quantize_dynamic, report
from octavo.torch.layers.conv import QuantizedConv1d
from tests.models import encoder, net, relative


def conv(inputs: int = 64, outputs: int = 64, kernel: int = 3, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups)


def left_float(model: nn.Module, recipe: str = "int8") -> dict[str, str]:
    found = inspect(model, recipe).decisions
    return {
        d.layer.name: d.reason for d in found if d.layer.kind is Kind.CONV and d.scheme.is_float
    }


def places(model: nn.Module) -> dict[str, Place]:
    return {
        name: place
        for name, reason in left_float(model).items()
        for place in Place
        if reason.startswith(place.value)
    }


def test_the_first_and_the_last_stay_float() -> None:
    chain = nn.Sequential(conv(8), nn.ReLU(), conv(), conv(), nn.Flatten(), nn.Linear(64, 10))
    assert places(chain) == {"0": Place.FIRST, "3": Place.LAST}
    assert places(nn.Sequential(nn.Conv2d(1, 8, 3), conv())) == {}


def test_behind_depthwise_ones_and_in_gates() -> None:
    squeeze = {"pool": nn.AdaptiveAvgPool2d(1), "down": conv(kernel=1), "up": conv(kernel=1)}
    gate = nn.ModuleDict(squeeze)  # squeeze-and-excitation
    separable = nn.Sequential(conv(groups=64), nn.BatchNorm2d(64), gate, conv(kernel=1))
    found = places(nn.Sequential(conv(), separable, conv(kernel=1), conv()))
    expected = {"1.2.down": Place.GATE, "1.2.up": Place.GATE, "1.3": Place.SEPARABLE}
    assert found == {"0": Place.FIRST, **expected, "3": Place.LAST}
    pooled = nn.Sequential(conv(), conv(kernel=1), conv(), conv(), nn.AdaptiveAvgPool2d(1))
    assert places(pooled) == {"0": Place.FIRST, "3": Place.LAST}  # a pool behind makes no gate


def test_what_makes_a_raw_signal() -> None:
    model = nn.Sequential(nn.Conv1d(64, 64, 3), nn.ConvTranspose1d(64, 64, 3), nn.Conv1d(64, 64, 3))
    assert places(model) == {"0": Place.FIRST, "2": Place.SIGNAL}
    transposed = next(d for d in inspect(model).decisions if d.layer.name == "1")
    assert "ConvTranspose1d" in transposed.reason


def patches() -> Any:
    """A vision transformer: one convolution, and the linear layers behind it."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        return m.encoder(m.patches(x).flatten(2).transpose(1, 2))

    stem = nn.Conv2d(3, 192, 16, stride=16)
    return net(forward, patches=stem, encoder=encoder(192, 2, dim_feedforward=128)).eval()


def frames() -> Any:
    """An audio model: every other frame of a convolution's, and linear layers."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        x = nn.functional.gelu(m.conv2(nn.functional.gelu(m.conv1(x)))).transpose(1, 2)
        for layer in m.layers:
            x = x + layer(x)
        return x

    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
    first, second = nn.Conv1d(80, 64, 3, padding=1), nn.Conv1d(64, 64, 3, stride=2, padding=1)
    return net(forward, conv1=first, conv2=second, layers=layers).eval()


STEMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "patches of an image": (patches, (2, 3, 64, 64), {"patches"}),
    "frames of a sound": (frames, (2, 80, 100), {"conv1"}),
}


@pytest.mark.parametrize("stem", STEMS)
def test_the_stem_of_a_transformer_is_quantized_but_for_the_first(stem: str) -> None:
    make, shape, first = STEMS[stem]
    torch.manual_seed(0)
    model = make()
    assert places(model) == dict.fromkeys(first, Place.FIRST)
    done = quantize_dynamic(model, recipe="int8")
    found = {o.layer.name for o in report(done).layers if o.layer.kind is Kind.CONV and o.reason}
    assert found == first
    x = torch.randn(shape)
    with torch.no_grad():
        assert relative(done(x), model(x)) < 0.03


def test_a_rule_comes_before_what_is_known_of_convolutions() -> None:
    mine = preset("int8").with_rules_first(Rule(FLOAT, name="patches", reason="mine"))
    found = {d.layer.name: d.reason for d in inspect(patches(), mine).decisions}
    assert found["patches"] == "mine"
    every = preset("int8").with_rules_first(Rule(preset("int8").default, kind=Kind.CONV))
    chain = nn.Sequential(conv(3), conv(), conv())
    assert all(not d.scheme.is_float for d in inspect(chain, every).decisions)


def test_other_recipes_and_the_call_of_torch_ao() -> None:
    assert type(quantize_dynamic(patches()).patches) is nn.Conv2d
    assert "patches" in left_float(patches(), "int8-block")
    done = quantize_dynamic(frames(), recipe="int8-accurate")
    assert type(done.conv2) is QuantizedConv1d
