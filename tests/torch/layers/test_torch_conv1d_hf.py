"""Hugging Face's Conv1D: nn.Linear with the weight the other way round."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

import octavo.torch
from octavo.recipe import PRESETS, Scheme, WeightScheme
from octavo.torch.layers.half_linear import QuantizedHalfLinear
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.transformers_conv1d import (
    QuantizedHalfTransformersConv1D,
    QuantizedTransformersConv1D,
)
from octavo.torch.mapping import default_mapping
from octavo.torch.quantizer import Quantizer
from octavo.torch.weight_choice import SchemeChoice, WeightChoice
from tests.torch.behaviour import (
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    every_float,
)

CHOICES: dict[str, WeightChoice] = {
    "int8": SchemeChoice(Scheme()),
    "affine": SchemeChoice(Scheme(WeightScheme(symmetric=False))),
    "float16": SchemeChoice(PRESETS["float16"].default),
}
every_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def float_layer() -> Any:
    torch.manual_seed(0)
    layer = Conv1D(21, 37)
    nn.init.normal_(layer.bias)
    return layer


def as_linear(layer: Any) -> nn.Linear:
    linear = nn.Linear(37, 21)
    linear.weight = nn.Parameter(layer.weight.detach().t().contiguous())
    linear.bias = layer.bias
    return linear


def rows(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(shape)


@every_choice
@every_float
def test_it_is_the_linear_layer_of_the_transposed_weight(
    choice: WeightChoice, dtype: torch.dtype
) -> None:
    float_one = float_layer()
    layer: Any = QuantizedTransformersConv1D.from_float(float_one, choice)
    linear: Any = QuantizedLinear.from_float(as_linear(float_one), choice)
    for x in (rows(2, 3, 37), rows(37), rows(0, 37)):
        assert_bits(layer(x.to(dtype)), linear(x.to(dtype)))
    assert (layer.nx, layer.nf) == (37, 21)
    assert layer.weight.shape == (37, 21)
    assert_bits(layer.weight(), linear.weight().t())


@every_choice
def test_surroundings(choice: WeightChoice) -> None:
    layer = QuantizedTransformersConv1D.from_float(float_layer(), choice)
    assert_keeps_its_state(layer, rows(3, 37))
    assert_runs_in_graphs(layer, (rows(3, 37),), (rows(7, 37),))


def test_a_shared_weight_is_packed_once() -> None:
    float_one, other = float_layer(), float_layer()
    other.weight = float_one.weight
    quantizer = Quantizer(frozenset({id(float_one.weight)}))
    a, b = (
        QuantizedTransformersConv1D.from_float(m, CHOICES["int8"], quantizer, name)
        for m, name in ((float_one, "a"), (other, "b"))
    )
    assert a.packed.data_ptr() == b.packed.data_ptr()
    assert quantizer.sqnr_db("a") == quantizer.sqnr_db("b")


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.qint8, QuantizedTransformersConv1D),
        (torch.float16, QuantizedHalfTransformersConv1D),
    ],
    ids=["int8", "float16"],
)
def test_a_model_with_it_is_quantized_by_default(dtype: torch.dtype, kind: type) -> None:
    assert default_mapping()[Conv1D] is QuantizedTransformersConv1D
    model = nn.Sequential(float_layer(), nn.Tanh())
    quantized = octavo.torch.quantize_dynamic(model, dtype=dtype)
    assert type(quantized[0]) is kind
    x = rows(4, 37)
    assert (quantized(x) - model(x)).norm() <= 0.01 * model(x).norm()
    (outcome,) = octavo.torch.report(quantized).layers
    assert outcome.quantized
    assert outcome.layer.op == "Conv1D"


def test_the_mapping_does_not_load_transformers() -> None:
    code = (
        "import sys; from octavo.torch import default_mapping; found = default_mapping();"
        "assert 'transformers' not in sys.modules; print(len(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert int(done.stdout) == len(default_mapping()) - 1


def test_gpt2_generates_the_same_shapes_with_int8_and_float16_layers() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=32,
        vocab_size=50,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = GPT2LMHeadModel(config).eval()
    ids = torch.tensor([[3, 4, 5, 6]])
    expected = model(ids).logits.detach()
    for dtype, error in ((torch.qint8, 0.05), (torch.float16, 0.002)):
        quantized = octavo.torch.quantize_dynamic(model, dtype=dtype)
        kinds = {type(m) for m in quantized.modules()}
        assert Conv1D not in kinds
        assert (quantized(ids).logits - expected).norm() <= error * expected.norm()
        made = quantized.generate(
            ids, max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0
        )
        assert made.shape == (1, 9)
        wanted = QuantizedLinear if dtype is torch.qint8 else QuantizedHalfLinear
        assert sum(isinstance(m, wanted) for m in quantized.modules()) == 9
