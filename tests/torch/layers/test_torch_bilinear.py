"""QuantizedBilinear against a float64 statement of its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from octavo.errors import OptionError
from octavo.recipe import Kind
from octavo.torch import export_onnx, inspect, load, quantize_dynamic, report, save
from octavo.torch.layers.bilinear import QuantizedBilinear
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.qconfig import PerChannelMinMaxObserver, QConfig
from tests.core import statement
from tests.models import assert_bits, filled, operators, relative, run, seeded
from tests.torch.layers.cases import every, quantized, rows

pytestmark = pytest.mark.usefixtures("one_registry")

SIZES = [(1, 1, 1), (37, 5, 3), (24, 40, 16), (130, 3, 7)]
CLOSE = 0.02


def made(choice: str = "default", sizes: tuple[int, int, int] = (37, 5, 3), **more: Any) -> Any:
    """A quantized layer, and the float one."""
    torch.manual_seed(0)
    float_one = nn.Bilinear(*sizes, **more)
    return quantized(float_one, choice), float_one


def given(layer: Any, batch: int) -> tuple[Tensor, Tensor]:
    return rows(batch, layer.in1_features), seeded(batch, layer.in2_features)


class Pairs(nn.Module):
    """A linear layer, and a bilinear one over what it returns and a second input."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 24)
        self.pair = nn.Bilinear(24, 8, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.pair(torch.relu(self.up(x)), y)


@every(["default", "per tensor", "affine"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_it_computes_what_is_defined(choice: str, sizes: tuple[int, int, int], bias: bool) -> None:
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


def test_the_weight_is_within_half_a_step() -> None:
    layer, float_one = made()
    step = layer.scale.reshape(3, 1, 5)
    assert ((layer.weight - float_one.weight).abs() <= 0.501 * step).all()
    assert layer.integers().shape == (3, 37, 5)
    assert layer.integers().abs().amax(1).eq(127).all()  # a scale for each (output, second input)


def test_its_weight_can_be_written() -> None:
    layer, float_one = made()
    x = given(layer, 4)
    layer.weight.data += 1.0
    with torch.no_grad():
        float_one.weight += 1.0
    assert relative(layer(*x), float_one(*x)) <= CLOSE


def test_groups_of_inputs_have_scales_of_their_own() -> None:
    layer, float_one = made("groups", (256, 8, 5))
    plain, _ = made("default", (256, 8, 5))
    x1, x2 = given(layer, 9)
    x1[:, :128] *= 100
    want = float_one(x1, x2).detach()
    assert layer.group == 128
    assert (layer(x1, x2) - want).norm() < (plain(x1, x2) - want).norm()


def test_many_rows_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, _ = made(sizes=(37, 130, 9))
    x = given(layer, 12)
    y = layer(*x)
    monkeypatch.setattr("octavo.torch.layers.bilinear._AT_ONCE", 5000)
    assert_bits(layer(*x), y)


@pytest.mark.parametrize(
    ("x2", "kind"),
    [
        (torch.ones(2, 6), ValueError),
        (torch.ones(3, 5), ValueError),
        (torch.ones(2, 5).half(), TypeError),
    ],
    ids=["size", "rows", "dtypes"],
)
def test_second_inputs_that_are_refused(x2: Tensor, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="input2: "):
        made()[0](torch.ones(2, 37), x2)


def test_a_recipe_quantizes_it_and_the_report_says_so(tmp_path: Path) -> None:
    model = filled(Pairs())
    decision = next(d for d in inspect(model).decisions if d.layer.name == "pair")
    assert (decision.layer.kind, decision.layer.op) == (Kind.LINEAR, "Bilinear")
    assert decision.layer.macs_per_row == 24 * 8 * 6
    assert not decision.scheme.is_float
    made = quantize_dynamic(model, recipe="int8")
    assert type(made.pair) is QuantizedBilinear
    outcome = report(made).layers[1]
    assert outcome.quantized
    assert outcome.bytes_before == 24 * 8 * 6 * 4
    assert outcome.bytes_after < outcome.bytes_before / 2
    assert 35 < outcome.sqnr_db < 60
    x = seeded(5, 16), seeded(5, 8, seed=1)
    assert relative(made(*x), model(*x)) <= 2 * CLOSE
    save(made, tmp_path / "m.safetensors")
    assert_bits(load(tmp_path / "m.safetensors", Pairs)(*x), made(*x))


def test_where_it_stays_float_and_where_it_does_not() -> None:
    made = quantize_dynamic(Pairs())
    assert [type(m) for m in made.children()] == [QuantizedLinear, nn.Bilinear]
    assert "as in torch.ao; name it in qconfig_spec" in report(made).layers[1].reason
    for spec in ({nn.Bilinear}, {"pair"}):
        assert type(quantize_dynamic(Pairs(), spec).pair) is QuantizedBilinear
    made = quantize_dynamic(Pairs(), recipe="float16")
    assert "no float16 bilinear layer" in report(made).layers[1].reason


def test_a_qconfig_along_another_axis_is_refused() -> None:
    weight = PerChannelMinMaxObserver.with_args(
        dtype="int8", qscheme="per_channel_symmetric", ch_axis=1
    )
    with pytest.raises(OptionError, match="ch_axis=1"):
        quantize_dynamic(Pairs(), {nn.Bilinear: QConfig(activation=None, weight=weight)})


@pytest.mark.parametrize("target", ["portable", pytest.param("native", marks=pytest.mark.slow)])
def test_it_is_exported(tmp_path: Path, target: str) -> None:
    model = quantize_dynamic(filled(Pairs()), recipe="int8")
    args = seeded(5, 16), seeded(5, 8, seed=1)
    exported = export_onnx(model, args, tmp_path / "m.onnx", target)
    assert exported.operators == {"linear": 2}
    (y,) = run(tmp_path / "m.onnx", *args)
    assert relative(y, model(*args)) <= (2e-6 if target == "native" else 2 * CLOSE)
    assert ("MatMulInteger" in " ".join(operators(tmp_path / "m.onnx"))) is (target == "portable")
