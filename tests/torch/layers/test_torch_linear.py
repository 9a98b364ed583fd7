"""QuantizedLinear against a float64 statement of its definition."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.errors import NotTrainableError
from octavo.torch.layers.linear import QuantizedLinear
from tests.core import statement
from tests.models import assert_bits, quiet
from tests.torch.behaviour import assert_runs_in_graphs
from tests.torch.layers.cases import CHOICES, every, quantized, rows


def float_layer(k: int = 37, n: int = 21, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(k, n, bias=bias)


def stated(layer: QuantizedLinear) -> statement.Layer:
    zero = None if layer.zero_point is None else layer.zero_point.numpy()
    bias = None if layer.bias is None else layer.bias.numpy()
    return statement.Layer(layer.integers().numpy(), layer.scale.numpy(), zero, bias, layer.group)


@every(CHOICES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (21, 37), (16, 128), (130, 300)])
def test_it_computes_what_is_defined(choice: str, bias: bool, n: int, k: int) -> None:
    layer, x = quantized(float_layer(k, n, bias=bias), choice), rows(5, k)
    expected = stated(layer)(*statement.quantize_rows(x.numpy(), layer.group))
    statement.assert_states(layer(x).numpy(), expected)


@every(CHOICES)
def test_the_weight_is_within_half_a_step(choice: str) -> None:
    float_one = float_layer(300, 40)
    layer = quantized(float_one, choice)
    w = layer.weight()
    assert w.dtype == torch.float32
    assert ((w - float_one.weight).abs() <= 0.501 * layer.scale[:, None]).all()


def test_scales_are_those_of_the_choice() -> None:
    float_one = float_layer()
    w = float_one.weight.detach().abs()
    layer = quantized(float_one)
    assert layer.zero_point is None
    assert torch.equal(layer.scale, w.amax(1) / 127)
    assert layer.integers().abs().amax(1).eq(127).all()
    assert quantized(float_one, "qconfig per tensor").scale.unique().tolist() == [w.max() / 127.5]


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_sizes_of_zero(bias: bool) -> None:
    assert quantized(nn.Linear(5, 0, bias=bias))(torch.ones(2, 5)).shape == (2, 0)
    assert quantized(nn.Linear(5, 0, bias=bias), "float16")(torch.ones(2, 5)).shape == (2, 0)
    float_one, x = nn.Linear(0, 4, bias=bias), torch.ones(2, 3, 0)
    for choice in ("default", "float16"):
        assert_bits(quantized(float_one, choice)(x), float_one(x).detach())


def test_complex_weights_stay_float_with_a_reason() -> None:
    model = nn.Sequential(nn.Linear(3, 3, dtype=torch.complex64), nn.Linear(3, 3))
    made = octavo.torch.quantize_dynamic(model)
    assert [type(m) for m in made] == [nn.Linear, QuantizedLinear]
    assert "complex64" in octavo.torch.report(made).layers[0].reason


def test_inductor() -> None:
    layer = quantized(float_layer())
    assert_runs_in_graphs(layer, (rows(3, 37),), (rows(7, 37),), backend="inductor")


def test_compiling_in_grad_mode_works_and_backward_says_why_not() -> None:
    torch._dynamo.reset()
    layer, x = quantized(float_layer()), rows(3, 37).requires_grad_()
    y = quiet(torch.compile(layer, fullgraph=True, backend="aot_eager"))(x)
    assert_bits(y.detach(), layer(x.detach()))
    with pytest.raises(NotTrainableError, match=r"octavo::linear has no backward"):
        y.sum().backward()


def test_the_weight_looks_like_a_tensor() -> None:
    layer = quantized(float_layer(), "affine")
    w: Any = layer.weight
    assert isinstance(w, Tensor)
    assert (w.dtype, w.shape, w.device.type) == (torch.float32, (21, 37), "cpu")
    assert_bits(w.t().contiguous(), w().t().contiguous())
    x = rows(3, 37)
    assert_bits(x @ w.t(), x @ w().t())
    assert_bits(copy.deepcopy(layer).weight(), w())
