"""QuantizedLinear against a float64 statement of its definition, and in all its surroundings."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.errors import ModelError, NotTrainableError
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.qconfig import default_dynamic_qconfig, per_channel_dynamic_qconfig
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.weight_choice import SchemeChoice, WeightChoice
from tests.core import statement
from tests.torch.behaviour import (
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    every_float,
    in_another_process,
    quiet,
)

_TENSOR = WeightScheme(granularity=Granularity.TENSOR)
_GROUPS = ActivationScheme(granularity=Granularity.GROUP, group=128)
CHOICES: dict[str, WeightChoice] = {
    "default": SchemeChoice(Scheme()),
    "per tensor": SchemeChoice(Scheme(_TENSOR)),
    "affine": SchemeChoice(Scheme(WeightScheme(symmetric=False))),
    "groups": SchemeChoice(Scheme(WeightScheme(), _GROUPS)),
    "accurate": SchemeChoice(Scheme(WeightScheme(symmetric=False), _GROUPS)),
    "7 bits": SchemeChoice(Scheme(WeightScheme(reduce_range=True))),
    "histogram": SchemeChoice(
        Scheme(WeightScheme(granularity=Granularity.TENSOR, observer="histogram"))
    ),
    "qconfig per tensor": QConfigChoice(default_dynamic_qconfig),
    "qconfig per channel": QConfigChoice(per_channel_dynamic_qconfig),
}
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def float_layer(k: int = 37, n: int = 21, *, bias: bool = True, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(k, n, bias=bias)


def rows(*shape: int, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(shape) * 10 ** torch.empty(*shape[:-1], 1).uniform_(-2, 2)


def stated(layer: QuantizedLinear) -> statement.Layer:
    zero = None if layer.zero_point is None else layer.zero_point.numpy()
    bias = None if layer.bias is None else layer.bias.numpy()
    return statement.Layer(layer.integers().numpy(), layer.scale.numpy(), zero, bias, layer.group)


def assert_as_stated(layer: QuantizedLinear, x: Tensor) -> None:
    """For float32 `x` [M, K]."""
    group = layer.group
    expected = stated(layer)(*statement.quantize_rows(x.numpy(), group))
    statement.assert_states(layer(x).numpy(), expected)


# --- the numbers ---


@every_choice
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (21, 37), (16, 128), (130, 300)])
def test_it_computes_what_is_defined(choice: WeightChoice, bias: bool, n: int, k: int) -> None:
    layer = QuantizedLinear.from_float(float_layer(k, n, bias=bias), choice)
    assert_as_stated(layer, rows(5, k))


@every_choice
def test_the_weight_is_within_half_a_step(choice: WeightChoice) -> None:
    float_one = float_layer(300, 40)
    layer = QuantizedLinear.from_float(float_one, choice)
    w = layer.weight()
    assert w.dtype == torch.float32
    step = layer.scale[:, None]
    assert ((w - float_one.weight).abs() <= 0.501 * step).all()


def test_the_default_is_symmetric_per_channel_of_127_steps() -> None:
    float_one = float_layer()
    layer = QuantizedLinear.from_float(float_one)
    assert layer.zero_point is None
    assert torch.equal(layer.scale, float_one.weight.detach().abs().amax(1) / 127)
    assert layer.integers().abs().amax(1).eq(127).all()


def test_the_qconfig_default_has_one_scale() -> None:
    float_one = float_layer()
    layer = QuantizedLinear.from_float(float_one, QConfigChoice(default_dynamic_qconfig))
    assert layer.scale.unique().numel() == 1
    assert layer.scale[0] == float_one.weight.detach().abs().max() / 127.5


@every_float
def test_every_dtype_is_computed_in_float32_and_returned_in_kind(dtype: torch.dtype) -> None:
    layer = QuantizedLinear.from_float(float_layer())
    x = rows(4, 37).to(dtype)
    assert_bits(layer(x), layer(x.float()).to(dtype))


@pytest.mark.parametrize(
    "shape", [(37,), (1, 37), (2, 3, 37), (2, 1, 3, 2, 37), (0, 37), (2, 0, 37)]
)
def test_every_rank(shape: tuple[int, ...]) -> None:
    layer = QuantizedLinear.from_float(float_layer())
    x = rows(*shape)
    y = layer(x)
    assert y.shape == (*shape[:-1], 21)
    assert_bits(y.reshape(-1, 21), layer(x.reshape(-1, 37)))


@every_float
def test_strided_inputs(dtype: torch.dtype) -> None:
    layer = QuantizedLinear.from_float(float_layer())
    x = rows(6, 80).to(dtype)
    for view in (
        x[:, 3:40],
        x[::2, :37],
        x.t()[:37, :5].t(),
        x[:, 1:75:2],
        x[:1, :37].expand(4, 37),
    ):
        assert_bits(layer(view), layer(view.clone(memory_format=torch.contiguous_format)))
    whole = rows(2, 3, 37).to(dtype)
    assert_bits(layer(whole.transpose(0, 1)), layer(whole).transpose(0, 1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(layout: torch.layout) -> None:
    layer = QuantizedLinear.from_float(nn.Linear(8, 5))
    parts = [torch.randn(n, 8) for n in (2, 3, 1)]
    for _ in range(2):  # the second call has a way of its own
        found = layer(torch.nested.nested_tensor(parts, layout=layout))
        assert found.is_nested
        assert found.layout is layout
        for y, x in zip(found.unbind(), parts, strict=True):
            assert_bits(y, layer(x))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_sizes_of_zero(bias: bool) -> None:
    no_outputs = QuantizedLinear.from_float(nn.Linear(5, 0, bias=bias))
    assert no_outputs(torch.ones(2, 5)).shape == (2, 0)
    float_one = nn.Linear(0, 4, bias=bias)
    no_inputs = QuantizedLinear.from_float(float_one)
    assert_bits(no_inputs(torch.ones(2, 3, 0)), float_one(torch.ones(2, 3, 0)).detach())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@every_choice
def test_what_is_not_finite_stays_in_its_row(choice: WeightChoice, bad: float) -> None:
    layer = QuantizedLinear.from_float(float_layer(200), choice)
    x = rows(5, 200)
    y = layer(x)
    x[2, 7] = bad
    spoilt = layer(x)
    assert spoilt[2].isnan().all()
    keep = [0, 1, 3, 4]
    assert_bits(spoilt[keep], y[keep])


@every_choice
def test_a_row_100_times_as_large_changes_no_bit_of_the_others(choice: WeightChoice) -> None:
    layer = QuantizedLinear.from_float(float_layer(300, 64), choice)
    x = rows(9, 300)
    y = layer(x)
    x[4] *= 100
    keep = [0, 1, 2, 3, 5, 6, 7, 8]
    assert_bits(layer(x)[keep], y[keep])
    assert_bits(torch.stack([layer(row) for row in x]), layer(x))


def test_a_half_model_is_quantized_as_its_weights_are() -> None:
    float_one = float_layer().half()
    layer = QuantizedLinear.from_float(float_one)
    same = QuantizedLinear.from_float(copy.deepcopy(float_one).float())
    assert torch.equal(layer.packed, same.packed)
    assert layer(rows(2, 37).half()).dtype == torch.float16


# --- errors ---


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (torch.ones(2, 36), ValueError, r"x: needs shape \[..., 37\], not \(2, 36\)"),
        (torch.tensor(1.0), ValueError, r"x: needs shape \[..., 37\], not \(\)"),
        (torch.ones(2, 37, dtype=torch.int64), TypeError, "x: needs float32.*not int64"),
        (torch.ones(2, 37, dtype=torch.complex64), TypeError, "x: needs float32.*not complex64"),
    ],
    ids=["columns", "scalar", "integers", "complex"],
)
def test_inputs_that_are_refused(x: Tensor, kind: type[Exception], message: str) -> None:
    layer = QuantizedLinear.from_float(float_layer())
    with pytest.raises(kind, match=message):
        layer(x)


def test_an_empty_layer_says_that_it_is_empty() -> None:
    with torch.device("meta"):
        layer = QuantizedLinear(37, 21)
    with pytest.raises(ModelError, match="holds no weights yet"):
        layer(torch.ones(2, 37))


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    float_one = float_layer()
    with torch.no_grad():
        float_one.weight[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"encoder\.fc: weight: channel 3 .*NaN or infinity"):
        QuantizedLinear.from_float(float_one, name="encoder.fc")


def test_complex_weights_stay_float_with_a_reason() -> None:
    model = nn.Sequential(nn.Linear(3, 3, dtype=torch.complex64), nn.Linear(3, 3))
    quantized = octavo.torch.quantize_dynamic(model)
    assert [type(m) for m in quantized] == [nn.Linear, QuantizedLinear]
    assert "complex64" in octavo.torch.report(quantized).layers[0].reason


# --- surroundings ---


def test_threads_do_not_matter() -> None:
    layer = QuantizedLinear.from_float(float_layer(512, 700))
    assert_threads_do_not_matter(layer, rows(64, 512))


@every_choice
def test_state(choice: WeightChoice) -> None:
    layer = QuantizedLinear.from_float(float_layer(), choice)
    assert_keeps_its_state(layer, rows(3, 37))


@pytest.mark.parametrize(
    "choice", [CHOICES["default"], CHOICES["accurate"]], ids=["int8", "accurate"]
)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_graphs(choice: WeightChoice, bias: bool) -> None:
    layer = QuantizedLinear.from_float(float_layer(bias=bias), choice)
    assert_runs_in_graphs(layer, (rows(3, 5, 37),), (rows(7, 5, 37),))


def test_inductor() -> None:
    layer = QuantizedLinear.from_float(float_layer())
    assert_runs_in_graphs(layer, (rows(3, 37),), (rows(7, 37),), backend="inductor")


def test_another_process() -> None:
    layer, x = QuantizedLinear.from_float(float_layer()), rows(3, 37)
    (y,) = in_another_process([layer], [x])
    assert_bits(y, layer(x))


def test_loading_in_place_is_seen() -> None:
    layer = QuantizedLinear.from_float(float_layer())
    other = QuantizedLinear.from_float(float_layer(seed=5))
    x = rows(3, 37)
    layer(x)
    layer.load_state_dict(other.state_dict())
    assert_bits(layer(x), other(x))


def test_forward_works_in_grad_mode_and_backward_says_why_not() -> None:
    layer = QuantizedLinear.from_float(float_layer())
    x = rows(3, 37).requires_grad_()
    y = layer(x)
    assert_bits(y.detach(), layer(x.detach()))
    with pytest.raises(NotTrainableError, match=r"octavo::linear has no backward"):
        y.sum().backward()


def test_compiling_in_grad_mode_works_and_backward_says_why_not() -> None:
    torch._dynamo.reset()
    layer = QuantizedLinear.from_float(float_layer())
    x = rows(3, 37).requires_grad_()
    y = quiet(torch.compile(layer, fullgraph=True, backend="aot_eager"))(x)
    assert_bits(y.detach(), layer(x.detach()))
    with pytest.raises(NotTrainableError, match=r"octavo::linear has no backward"):
        y.sum().backward()


def test_the_weight_looks_like_a_tensor() -> None:
    layer = QuantizedLinear.from_float(float_layer(), CHOICES["affine"])
    w: Any = layer.weight
    assert isinstance(w, Tensor)
    assert (w.dtype, w.shape, w.device.type) == (torch.float32, (21, 37), "cpu")
    assert_bits(w.t().contiguous(), w().t().contiguous())
    x = rows(3, 37)
    assert_bits(x @ w.t(), x @ w().t())
    assert_bits(copy.deepcopy(layer).weight(), w())


def test_it_prints_what_it_is() -> None:
    layer = QuantizedLinear.from_float(float_layer(), CHOICES["accurate"])
    assert repr(layer) == (
        "QuantizedLinear(in_features=37, out_features=21, bias=True, int8 affine, "
        "activation groups of 128)"
    )
