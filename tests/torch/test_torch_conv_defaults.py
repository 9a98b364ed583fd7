"""Which convolutions recipes quantize in PyTorch models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from octavo.recipe import FLOAT, Kind, Rule, preset
from octavo.recipe.convolutions import Place
from octavo.torch import inspect, quantize_dynamic, report
from octavo.torch.layers.conv import QuantizedConv1d


def conv(inputs: int = 64, outputs: int = 64, kernel: int = 3, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups)


def left_float(model: nn.Module, recipe: str = "int8") -> dict[str, str]:
    """The reasons of the convolutions that are float, by name."""
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


class Gate(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.down, self.up = nn.AdaptiveAvgPool2d(1), conv(kernel=1), conv(kernel=1)


def test_the_first_and_the_last_stay_float() -> None:
    chain = nn.Sequential(conv(8), nn.ReLU(), conv(), conv(), nn.Flatten(), nn.Linear(64, 10))
    assert places(chain) == {"0": Place.FIRST, "3": Place.LAST}
    assert places(nn.Sequential(nn.Conv2d(1, 8, 3), conv())) == {}


def test_behind_depthwise_ones_and_in_gates() -> None:
    separable = nn.Sequential(conv(groups=64), nn.BatchNorm2d(64), Gate(), conv(kernel=1))
    found = places(nn.Sequential(conv(), separable, conv(kernel=1), conv()))
    expected = {"1.2.down": Place.GATE, "1.2.up": Place.GATE, "1.3": Place.SEPARABLE}
    assert found == {"0": Place.FIRST, **expected, "3": Place.LAST}


def test_a_pool_behind_makes_no_gate() -> None:
    model = nn.Sequential(conv(), conv(kernel=1), conv(), conv(), nn.AdaptiveAvgPool2d(1))
    assert places(model) == {"0": Place.FIRST, "3": Place.LAST}


def test_what_makes_a_raw_signal() -> None:
    model = nn.Sequential(nn.Conv1d(64, 64, 3), nn.ConvTranspose1d(64, 64, 3), nn.Conv1d(64, 64, 3))
    assert places(model) == {"0": Place.FIRST, "2": Place.SIGNAL}
    transposed = next(d for d in inspect(model).decisions if d.layer.name == "1")
    assert transposed.reason == "Octavo has no quantized form of ConvTranspose1d"


class Patches(nn.Module):
    """A vision transformer: one convolution, and the linear layers behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 16, stride=16)
        layer = nn.TransformerEncoderLayer(192, 2, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.encoder(self.patches(x).flatten(2).transpose(1, 2))
        return made


class Frames(nn.Module):
    """An audio model: every other frame of a convolution's, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(80, 64, 3, padding=1)
        self.conv2 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.conv2(nn.functional.gelu(self.conv1(x)))).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return x


STEMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "patches of an image": (Patches, (2, 3, 64, 64), {"patches"}),
    "frames of a sound": (Frames, (2, 80, 100), {"conv1"}),
}


@pytest.mark.parametrize("stem", STEMS)
def test_the_stem_of_a_transformer_is_quantized_but_for_the_first(stem: str) -> None:
    make, shape, first = STEMS[stem]
    torch.manual_seed(0)
    model = make().eval()
    assert places(model) == dict.fromkeys(first, Place.FIRST)
    done = quantize_dynamic(model, recipe="int8")
    found = {o.layer.name for o in report(done).layers if o.layer.kind is Kind.CONV and o.reason}
    assert found == first
    x = torch.randn(shape)
    with torch.no_grad():
        expected, found_y = model(x), done(x)
    distance = (found_y - expected).norm() / expected.norm()
    assert distance < 0.03


def test_the_call_of_torch_ao_keeps_convolutions_float() -> None:
    done = quantize_dynamic(Patches().eval())
    assert type(done.patches) is nn.Conv2d


@pytest.mark.parametrize("recipe", ["int8-block", "float16"])
def test_recipes_of_weights_alone_leave_them_float(recipe: str) -> None:
    assert "patches" in left_float(Patches(), recipe) or recipe == "float16"


def test_a_rule_comes_before_what_is_known_of_convolutions() -> None:
    mine = preset("int8").with_rules_first(Rule(FLOAT, name="patches", reason="mine"))
    found = {d.layer.name: d.reason for d in inspect(Patches(), mine).decisions}
    assert found["patches"] == "mine"
    every = preset("int8").with_rules_first(Rule(preset("int8").default, kind=Kind.CONV))
    chain = nn.Sequential(conv(3), conv(), conv())
    assert all(not d.scheme.is_float for d in inspect(chain, every).decisions)


def test_an_accurate_recipe_holds_them_per_image() -> None:
    done = quantize_dynamic(Frames().eval(), recipe="int8-accurate")
    assert type(done.conv2) is QuantizedConv1d
