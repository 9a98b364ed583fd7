"""QuantizedHalfLinear: 16-bit weights, computed in float32."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from octavo.torch import quantize_dynamic, report
from octavo.torch.layers.half_linear import QuantizedHalfLinear
from tests.models import assert_bits, mlp, seeded
from tests.torch.layers.cases import HALVES, choice_of, every, quantized


@every(HALVES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (21, 37), (130, 300)])
def test_it_computes_with_rounded_weights(choice: str, bias: bool, n: int, k: int) -> None:
    torch.manual_seed(0)
    float_one = nn.Linear(k, n, bias=bias)
    layer, x = quantized(float_one, choice), seeded(5, k)
    assert type(layer) is QuantizedHalfLinear
    w = float_one.weight.detach().to(getattr(torch, choice_of(choice).storage)).double()
    assert_bits(layer.weight(), w.float())
    y = x.double() @ w.t() + (float_one.bias.detach().double() if bias else 0)
    size = x.double().abs() @ w.abs().t() + 1
    assert ((layer(x) - y).abs() <= (k + 2) * 2**-24 * size).all()


def test_values_beyond_float16_are_refused() -> None:
    float_one = nn.Linear(37, 21)
    with torch.no_grad():
        float_one.weight[1, 2] = 1e6
    with pytest.raises(ValueError, match=r"fc: .* 1 values are beyond float16.*bfloat16"):
        quantized(float_one, "float16", name="fc")


def test_a_weight_with_nan_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        model[1].weight[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"1: weight .*NaN"):
        quantize_dynamic(model, dtype=torch.float16, inplace=True)
    assert [type(m) for m in model] == [nn.Linear, nn.Linear]


def test_the_report_says_what_became_of_the_layers() -> None:
    made = quantize_dynamic(mlp(64, 64, 64), dtype=torch.float16)
    assert [type(m) for m in made] == [QuantizedHalfLinear, nn.ReLU, QuantizedHalfLinear]
    for outcome in report(made).layers:
        assert outcome.scheme == "float16, weights only"
        assert outcome.bytes_after == outcome.bytes_before // 2
        assert 65 < outcome.sqnr_db < 80
