"""QuantizedConv1d and QuantizedConv2d against a float64 statement of their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import octavo.torch
from octavo.core.convolution import filter_bytes, pack_filters, unpack_filters
from octavo.errors import ModelError, NotTrainableError
from octavo.recipe import PRESETS, ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch.layers.conv import QuantizedConv1d, QuantizedConv2d
from octavo.torch.qconfig import QConfig, default_dynamic_qconfig, per_channel_dynamic_qconfig
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.qconfig.observers import PerChannelMinMaxObserver
from octavo.torch.weight_choice import DEFAULT, SchemeChoice, WeightChoice
from tests.core import statement
from tests.torch.behaviour import (
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    every_float,
    in_another_process,
)

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
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
_TENSOR = WeightScheme(granularity=Granularity.TENSOR)


def made(make: Any, choice: WeightChoice = DEFAULT) -> tuple[Any, Any]:
    torch.manual_seed(0)
    float_one = make()
    kind = QuantizedConv1d if isinstance(float_one, nn.Conv1d) else QuantizedConv2d
    return kind.from_float(float_one, choice), float_one


def images(layer: Any, n: int = 3, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
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


# --- the numbers ---


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")  # torch's own layer
@every_layer
@pytest.mark.parametrize(
    "choice",
    [DEFAULT, SchemeChoice(Scheme(_TENSOR)), QConfigChoice(per_channel_dynamic_qconfig)],
    ids=["default", "per tensor", "qconfig"],
)
def test_it_computes_what_is_defined(make: Any, choice: WeightChoice) -> None:
    layer, float_one = made(make, choice)
    x = images(layer)
    statement.assert_states(layer(x).numpy(), stated(layer, float_one, x))


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")  # torch's own layer
@every_layer
def test_it_is_near_torchs_layer(make: Any) -> None:
    layer, float_one = made(make)
    x = images(layer)
    y = float_one(x).detach()
    assert layer(x).shape == y.shape
    for image, want in zip(layer(x), y, strict=True):
        assert (image - want).norm() <= 0.02 * want.norm()


@every_layer
@every_float
def test_every_dtype_is_computed_in_float32_and_returned_in_kind(
    make: Any, dtype: torch.dtype
) -> None:
    layer, _ = made(make)
    x = images(layer).to(dtype)
    assert_bits(layer(x), layer(x.float()).to(dtype))


@every_layer
def test_shapes_and_strides(make: Any) -> None:
    layer, _ = made(make)
    x = images(layer)
    y = layer(x)
    assert_bits(layer(x[1]), y[1])
    assert layer(x[:0]).shape == (0, *y.shape[1:])
    assert_bits(layer(x.transpose(1, -1).contiguous().transpose(1, -1)), y)
    assert_bits(layer(x[::2]), y[::2])


@every_layer
def test_images_do_not_touch_each_other(make: Any) -> None:
    layer, _ = made(make)
    x = images(layer, 4)
    y = layer(x)
    x[1] *= 100
    x[2, 1, 4] = torch.nan
    x[3, 0, 5] = torch.inf
    spoilt = layer(x)
    assert_bits(spoilt[0], y[0])
    assert_bits(layer(x[1:2]), spoilt[1:2])
    assert spoilt[2:].isnan().all()


def test_the_weight_is_within_half_a_step() -> None:
    for make in LAYERS.values():
        layer, float_one = made(make)
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


# --- errors ---


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (torch.ones(2, 4, 9, 9), ValueError, r"input: needs shape \[N, 3, H, W\] or \[3, H, W\]"),
        (torch.ones(9, 9), ValueError, r"not \(9, 9\)"),
        (torch.ones(1, 1, 3, 9, 9), ValueError, r"not \(1, 1, 3, 9, 9\)"),
        (torch.ones(1, 3, 2, 9), ValueError, r"with padding it is \(2, 9\), smaller than"),
        (torch.ones(1, 3, 9, 9, dtype=torch.int32), TypeError, r"needs float32.*not int32"),
    ],
    ids=["channels", "axes", "more axes", "too small", "integers"],
)
def test_inputs_that_are_refused(x: Tensor, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        made(LAYERS["plain"])[0](x)


def test_an_empty_layer_says_that_it_is_empty() -> None:
    with torch.device("meta"):
        layer = QuantizedConv1d(3, 4, (3,), (1,), (0,), (1,))
    with pytest.raises(ModelError, match="holds no weights yet"):
        layer(torch.ones(1, 3, 9))


def test_filters_that_are_not_finite_are_refused_by_name() -> None:
    float_one = nn.Conv1d(3, 4, 3)
    with torch.no_grad():
        float_one.weight[2, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"stem: weight: channel 2 .*NaN or infinity"):
        QuantizedConv1d.from_float(float_one, name="stem")


# --- surroundings ---


@pytest.mark.sweep(3)
@every_layer
def test_surroundings(make: Any) -> None:
    layer, _ = made(make)
    x = images(layer)
    assert_keeps_its_state(layer, x)
    assert_runs_in_graphs(layer, (x,), (images(layer, 5),))
    assert_threads_do_not_matter(layer, images(layer, 40))


def test_graphs_over_one_image_and_other_sizes() -> None:
    layer, _ = made(LAYERS["padding"])
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((3, 8, 9), (3, 20, 31), (2, 3, 8, 9)):
        x = torch.randn(shape)
        assert_bits(compiled(x), layer(x))


def test_another_process() -> None:
    layers = [made(make)[0] for make in LAYERS.values()]
    inputs = [images(layer) for layer in layers]
    for layer, x, y in zip(layers, inputs, in_another_process(layers, inputs), strict=True):
        assert_bits(y, layer(x))


def test_backward_says_why_not() -> None:
    layer, _ = made(LAYERS["reflect"])
    x = images(layer).requires_grad_()
    y = layer(x)
    assert_bits(y.detach(), layer(x.detach()))
    with pytest.raises(NotTrainableError, match="octavo::conv has no backward"):
        y.sum().backward()


# --- in models ---


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1)
        self.b = nn.Conv1d(8, 4, 3, padding="same")
        self.up = nn.ConvTranspose1d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.b(functional.relu(self.a(x)).flatten(2)))  # type: ignore[no-any-return]


def quantized(spec: Any) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    model = octavo.torch.quantize_dynamic(Net(), spec)
    return model, {o.layer.name: o for o in octavo.torch.report(model).layers}


def test_convolutions_are_quantized_where_asked_for() -> None:
    model, outcomes = quantized({nn.Conv2d: Scheme(), "b": default_dynamic_qconfig})
    assert [type(m) for m in (model.a, model.b)] == [QuantizedConv2d, QuantizedConv1d]
    assert outcomes["a"].scheme == "int8 per channel, activations per row"
    assert outcomes["b"].scheme == "int8 per tensor, activations per row"
    assert outcomes["a"].sqnr_db > 35
    torch.manual_seed(0)
    y = Net()(torch.ones(2, 3, 6, 6)).detach()
    assert (model(torch.ones(2, 3, 6, 6)) - y).norm() <= 0.03 * y.norm()


def test_transposed_convolutions_stay_float_with_a_reason() -> None:
    model, outcomes = quantized({"a": Scheme()})
    assert type(model.up) is nn.ConvTranspose1d
    assert outcomes["up"].reason == "Octavo has no quantized form of ConvTranspose1d"


def test_affine_and_group_schemes_are_adapted_with_a_note() -> None:
    groups = ActivationScheme(granularity=Granularity.GROUP, group=128)
    _, outcomes = quantized({"a": Scheme(WeightScheme(symmetric=False), groups)})
    assert outcomes["a"].scheme == "int8 per channel, activations per row"
    (note,) = outcomes["a"].notes
    assert "symmetric weights, not affine" in note
    assert "activations per row" in note


def test_affine_qconfigs_and_float16_stay_float_with_a_reason() -> None:
    affine = QConfig(
        activation=None,
        weight=PerChannelMinMaxObserver.with_args(dtype="int8", qscheme="per_channel_affine"),
    )
    model, outcomes = quantized({"a": affine, "b": PRESETS["float16"].default, nn.Linear: Scheme()})
    assert [type(m) for m in (model.a, model.b)] == [nn.Conv2d, nn.Conv1d]
    assert "affine weights" in outcomes["a"].reason
    assert "no float16 convolution" in outcomes["b"].reason


def test_it_prints_what_it_is() -> None:
    assert repr(made(LAYERS["1d reflect"])[0]) == (
        "QuantizedConv1d(6, 6, kernel_size=(4,), stride=(1,), padding=(3,), dilation=(1,), "
        "groups=3, bias=True, padding_mode=reflect, int8)"
    )
