"""Hugging Face's Conv1D: nn.Linear with the weight the other way round."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from octavo.torch import quantize_dynamic, report
from octavo.torch.layers.transformers_conv1d import (
    QuantizedHalfTransformersConv1D,
    QuantizedTransformersConv1D,
)
from octavo.torch.quantizer import Quantizer
from octavo.torch.replace.mapping import default_mapping
from tests import fresh
from tests.models import assert_bits, relative, seeded
from tests.torch.layers.cases import FORMATS, choice_of, every, quantized


def float_layer() -> Any:
    torch.manual_seed(0)
    layer = Conv1D(21, 37)
    nn.init.normal_(layer.bias)
    return layer


@every(["default", "affine", "float16", *FORMATS])
def test_it_is_the_linear_layer_of_the_transposed_weight(choice: str) -> None:
    float_one, as_linear = float_layer(), nn.Linear(37, 21)
    as_linear.weight = nn.Parameter(float_one.weight.detach().t().contiguous())
    as_linear.bias = float_one.bias
    layer, linear = quantized(float_one, choice), quantized(as_linear, choice)
    for x in (seeded(2, 3, 37), seeded(37).bfloat16()):
        assert_bits(layer(x), linear(x))
    assert (layer.nx, layer.nf) == (37, 21)
    assert layer.weight.shape == (37, 21)
    assert_bits(layer.weight(), linear.weight().t())


def test_a_shared_weight_is_packed_once() -> None:
    float_one, other = float_layer(), float_layer()
    other.weight = float_one.weight
    quantizer = Quantizer(frozenset({id(float_one.weight)}))
    a, b = (
        QuantizedTransformersConv1D.from_float(m, choice_of("default"), quantizer, name)
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
    model, x = nn.Sequential(float_layer(), nn.Tanh()), seeded(4, 37)
    made = quantize_dynamic(model, dtype=dtype)
    assert type(made[0]) is kind
    assert relative(made(x), model(x)) <= 0.01
    (outcome,) = report(made).layers
    assert outcome.quantized
    assert outcome.layer.op == "Conv1D"


def test_the_mapping_does_not_load_transformers() -> None:
    code = """
    import sys
    from octavo.torch import default_mapping
    found = default_mapping()
    assert "transformers" not in sys.modules
    print(len(found))
    """
    assert int(fresh.python(code).stdout) == len(default_mapping()) - 1
