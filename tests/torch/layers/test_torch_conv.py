"""QuantizedConv1d and QuantizedConv2d against a float64 statement of their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from octavo.core.convolution import filter_bytes, pack_filters, unpack_filters
from octavo.recipe import PRESETS, ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch import quantize_dynamic
from octavo.torch.layers.conv import QuantizedConv1d, QuantizedConv2d
from octavo.torch.qconfig import QConfig, default_dynamic_qconfig
from octavo.torch.qconfig.observers import PerChannelMinMaxObserver
from tests.core import statement
from tests.models import assert_bits, net, outcomes, relative
from tests.torch.layers.cases import every, near, quantized

pytestmark = pytest.mark.usefixtures("one_registry")

LAYERS: dict[str, Any] = {
    "plain": lambda: nn.Conv2d(3, 5, 3),
    "padding": lambda: nn.Conv2d(3, 5, (3, 2), stride=(1, 2), padding=(2, 1)),
    "same": lambda: nn.Conv2d(3, 5, (4, 3), padding="same", dilation=(1, 2)),
    "valid": lambda: nn.Conv2d(3, 5, (4, 3), padding="valid", bias=False),
    "groups": lambda: nn.Conv2d(6, 4, 3, groups=2, dilation=2, padding=2),
    "depthwise": lambda: nn.Conv2d(6, 12, 3, groups=6, stride=2, padding=1),
    "reflect": lambda: nn.Conv2d(3, 5, 3, padding=(2, 1), padding_mode="reflect"),
    "replicate": lambda: nn.Conv2d(3, 5, (4, 3), padding="same", padding_mode="replicate"),
    "circular": lambda: nn.Conv2d(3, 5, 3, padding=(2, 1), padding_mode="circular", bias=False),
    "1d": lambda: nn.Conv1d(6, 5, 3, padding=1, stride=2),
    "1d same": lambda: nn.Conv1d(6, 5, 4, padding="same", dilation=3),
    "1d reflect": lambda: nn.Conv1d(6, 6, 4, padding=3, padding_mode="reflect", groups=3),
    "1d pointwise": lambda: nn.Conv1d(6, 40, 1, bias=False),
    "1d circular same": lambda: nn.Conv1d(6, 4, 4, padding="same", padding_mode="circular"),
}


def made(name: str, choice: str = "default") -> tuple[Any, Any]:
    """A quantized layer, and the float one."""
    torch.manual_seed(0)
    float_one = LAYERS[name]()
    return quantized(float_one, choice), float_one


def images(layer: Any, n: int = 3) -> Tensor:
    torch.manual_seed(1)
    shape = (n, layer.in_channels, *((23,) if layer.AXES == 1 else (11, 12)))
    return torch.randn(shape) * 10 ** torch.empty(n, *[1] * (layer.AXES + 1)).uniform_(-2, 2)


def stated(layer: Any, float_one: Any, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The outputs in float64, by torch's own layer over exact integers, and the error allowed."""
    q, scale, zero = statement.quantize_rows(x.reshape(len(x), -1).numpy())
    steps = torch.from_numpy(q.astype(np.int64) - zero).double().reshape(x.shape)
    exact = type(float_one)(
        **{k: getattr(float_one, k) for k in layer.CONFIG if k != "has_bias"}, bias=False
    ).double()
    with torch.no_grad():
        exact.weight.copy_(layer.integers())
        sums = exact(steps)
    ones = [1] * layer.AXES
    terms = sums * torch.from_numpy(scale).double().reshape(-1, 1, *ones)
    terms = (terms * layer.scale.double().reshape(1, -1, *ones)).numpy()
    bias = 0.0 if layer.bias is None else layer.bias.double().reshape(1, -1, *ones).numpy()
    y = terms + bias
    error = 3 * statement.EPS * np.abs(terms) + statement.EPS * np.abs(y)
    return y, error * 1.01 + statement.TINY


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")  # torch's own layer
@pytest.mark.parametrize("name", LAYERS)
@every(["default", "per tensor", "qconfig per channel"])
def test_it_computes_what_is_defined(name: str, choice: str) -> None:
    layer, float_one = made(name, choice)
    x = images(layer)
    y = layer(x)
    statement.assert_states(y.numpy(), stated(layer, float_one, x))
    if choice == "default":
        near(y, float_one(x).detach(), 0.02)
        w = layer.weight
        assert w.shape == float_one.weight.shape
        step = layer.scale.reshape(-1, *[1] * (layer.AXES + 1))
        assert ((w - float_one.weight).abs() <= 0.501 * step).all()


@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        ((6, 5, 2, 3), 2),
        ((6, 1, 2, 3), 3),
        ((32, 1, 600), 2),
        ((32, 1, 512), 2),
        ((7, 1, 40, 40), 1),
        ((5, 4, 1), 1),
    ],
)
def test_filters_are_unpacked_as_they_were_packed(shape: tuple[int, ...], groups: int) -> None:
    q = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
    packed = pack_filters(q, groups)
    assert packed.size == filter_bytes(shape, groups)
    assert np.array_equal(unpack_filters(packed, shape, groups), q)
    with pytest.raises(ValueError, match="packed: needs uint8"):
        unpack_filters(packed[1:], shape, groups)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 9\), smaller than"):
        made("plain")[0](torch.ones(1, 3, 2, 9))


def test_graphs_over_one_image_and_other_sizes() -> None:
    layer, _ = made("padding")
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((3, 8, 9), (3, 20, 31), (2, 3, 8, 9)):
        x = torch.randn(shape)
        assert_bits(compiled(x), layer(x))


def model() -> Any:
    torch.manual_seed(0)
    return net(
        lambda m, x: m.up(m.b(m.a(x).relu().flatten(2))),
        a=nn.Conv2d(3, 8, 3, padding=1),
        b=nn.Conv1d(8, 4, 3, padding="same"),
        up=nn.ConvTranspose1d(4, 4, 3),
    )


def test_convolutions_are_quantized_where_asked_for() -> None:
    made = quantize_dynamic(model(), {nn.Conv2d: Scheme(), "b": default_dynamic_qconfig})
    found = outcomes(made)
    assert [type(m) for m in (made.a, made.b)] == [QuantizedConv2d, QuantizedConv1d]
    assert found["a"].scheme == "int8 per channel, activations per row"
    assert found["b"].scheme == "int8 per tensor, activations per row"
    assert found["a"].sqnr_db > 35
    x = torch.ones(2, 3, 6, 6)
    assert relative(made(x), model()(x)) <= 0.03
    assert type(made.up) is nn.ConvTranspose1d
    assert "ConvTranspose1d" in found["up"].reason


def test_affine_and_group_schemes_are_adapted_with_a_note() -> None:
    groups = ActivationScheme(granularity=Granularity.GROUP, group=128)
    scheme = Scheme(WeightScheme(symmetric=False), groups)
    found = outcomes(quantize_dynamic(model(), {"a": scheme}))["a"]
    assert found.scheme == "int8 per channel, activations per row"
    (note,) = found.notes
    assert "symmetric weights, not affine" in note
    assert "activations per row" in note


def test_affine_qconfigs_and_float16_stay_float_with_a_reason() -> None:
    observer = PerChannelMinMaxObserver.with_args(dtype="int8", qscheme="per_channel_affine")
    spec = {"a": QConfig(activation=None, weight=observer), "b": PRESETS["float16"].default}
    made = quantize_dynamic(model(), spec | {nn.Linear: Scheme()}, allow_nothing=True)
    assert [type(m) for m in (made.a, made.b)] == [nn.Conv2d, nn.Conv1d]
    assert "affine weights" in outcomes(made)["a"].reason
    assert "no float16 convolution" in outcomes(made)["b"].reason


@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("way", ["eager", "compiled", "exported", "grad"])
def test_images_keep_their_memory_format(way: str, given: torch.memory_format) -> None:
    model = quantize_dynamic(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 5, 3)), {nn.Conv2d})
    for dtype in (torch.float32, torch.bfloat16) if way == "eager" else (torch.float32,):
        x = torch.randn(2, 3, 9, 11).to(dtype).to(memory_format=given)
        expected = model(x.contiguous())
        if way == "compiled":
            torch._dynamo.reset()
            found = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
        elif way == "exported":
            found = torch.export.export(model, (x,)).module()(x)
        else:
            found = model(x.requires_grad_(way == "grad"))
        assert found.is_contiguous(memory_format=given)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("shape", [(2, 1, 7, 7), (2, 3, 1, 1), (3, 9, 9)], ids=str)
def test_the_format_is_torchs_where_both_hold(shape: tuple[int, ...]) -> None:
    conv = nn.Conv2d(shape[-3], 4, 1)
    quantized = quantize_dynamic(nn.Sequential(conv), {nn.Conv2d})
    x = torch.randn(shape)
    assert quantized(x).stride() == conv(x).stride()
