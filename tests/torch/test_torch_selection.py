"""Which modules qconfig_spec chooses: as torch.ao 2.13 did, and where Octavo says more."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from octavo import Scheme
from octavo.errors import NothingQuantizedError, OptionError
from octavo.torch import qconfig as qc
from octavo.torch import quantize_dynamic, report
from octavo.torch.modules.linear import QuantizedLinear
from tests.torch.golden.record_selection import PATH
from tests.torch.golden.selection_cases import CASES, Model

GOLDEN = json.loads(PATH.read_text())
OURS = SimpleNamespace(
    default=qc.default_dynamic_qconfig,
    per_channel=qc.per_channel_dynamic_qconfig,
    float16=qc.float16_dynamic_qconfig,
    float_qparams=qc.float_qparams_weight_only_qconfig,
)


def converted(model: nn.Module) -> dict[str, str]:
    """Names of converted modules, and how their weights are held."""
    found = {}
    for outcome in report(model).quantized:
        name = re.sub(r"\.l\d$", "", outcome.layer.name)
        found[name] = outcome.scheme.split(",")[0]
    return found


def test_every_case_was_recorded() -> None:
    assert set(GOLDEN["cases"]) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_selection_is_that_of_torch_ao(case: str) -> None:
    model, arguments = CASES[case](OURS)
    found = converted(quantize_dynamic(model, **arguments))
    expected = GOLDEN["cases"][case]
    assert set(found) == set(expected)
    for name, words in expected.items():
        if words == "uint8 rows":
            assert found[name].startswith("uint8 per channel")
        elif words == "int8 per tensor" and not _is_explicit(arguments, name, case):
            assert found[name] == "int8 per channel", "the default, where no qconfig is given"
        else:
            assert found[name] == words


def _is_explicit(arguments: dict[str, Any], name: str, case: str) -> bool:
    """Whether the layer's qconfig was given, not only its name or type."""
    given_to_parent = case == "attribute-of-parent" and name.startswith("encoder")
    return isinstance(arguments.get("qconfig_spec"), dict) or given_to_parent


@pytest.mark.parametrize("case", GOLDEN["encoder.0"])
def test_explicit_qconfigs_give_the_integers_of_torch_ao(case: str) -> None:
    model, arguments = CASES[case](OURS)
    layer = quantize_dynamic(model, **arguments).encoder[0]
    expected = GOLDEN["encoder.0"][case]
    assert layer.integers().tolist() == expected["q"]
    scale = np.broadcast_to(np.float32(expected["scale"]), 8)
    np.testing.assert_array_equal(layer.scale.numpy(), scale)


def test_the_original_is_untouched_and_the_copy_in_eval_mode() -> None:
    model = Model().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    quantized = quantize_dynamic(model)
    assert model.training and type(model.encoder[0]) is nn.Linear
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module.training for module in quantized.modules())


def test_inplace_changes_the_model_itself() -> None:
    model = Model()
    assert quantize_dynamic(model, inplace=True) is model
    assert isinstance(model.encoder[0], QuantizedLinear)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"encodr.0"}, "no module 'encodr.0'. Did you mean 'encoder.0'"),
        ({"encoder.0": "int8"}, "value for 'encoder.0' is 'int8'; needs a QConfig, a Scheme"),
        (set(), "is empty"),
        ({}, "is empty"),
        ({3}, "3 is neither a module type nor a dotted name"),
        ({int}, "neither a module type"),
        ("encoder", "needs None, a set"),
        ({"lstm.l2"}, "no module 'lstm.l2'. Did you mean 'lstm.l1'"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_an_error(spec: Any, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        quantize_dynamic(Model(), spec)


@pytest.mark.parametrize("dtype", ["int4", torch.float32, torch.qint32, None])
def test_an_unknown_dtype_is_an_error_that_names_the_known(dtype: Any) -> None:
    with pytest.raises(OptionError, match=r"torch\.qint8 .*torch\.float16, torch\.quint8"):
        quantize_dynamic(Model(), dtype=dtype)


def test_quint4x2_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="quint4x2"):
        quantize_dynamic(Model(), {nn.EmbeddingBag}, dtype=torch.quint4x2)


@pytest.mark.parametrize("dtype", [torch.qint8, "qint8", "int8", torch.int8])
def test_int8_has_several_names(dtype: Any) -> None:
    assert isinstance(quantize_dynamic(Model(), dtype=dtype).encoder[0], QuantizedLinear)


def test_a_type_that_the_model_lacks_is_reported() -> None:
    quantized = quantize_dynamic(Model(False), {nn.Linear, nn.RNN, nn.EmbeddingBag})
    notes = "\n".join(report(quantized).notes)
    assert "names RNN; the model has none" in notes
    assert "names EmbeddingBag; the model has none" in notes


def test_only_types_that_the_model_lacks_leave_it_float_and_say_so() -> None:
    quantized = quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.LSTM})
    assert type(quantized[0]) is nn.Linear
    assert "names LSTM; the model has none" in "\n".join(report(quantized).notes)


def test_nothing_to_quantize_is_an_error_by_default() -> None:
    with pytest.raises(NothingQuantizedError, match="ReLU holds no weights"):
        quantize_dynamic(nn.ReLU())
    with pytest.raises(NothingQuantizedError, match="0: Conv1d is float by default"):
        quantize_dynamic(nn.Sequential(nn.Conv1d(1, 1, 1)))


def test_every_layer_left_float_has_a_reason() -> None:
    for arguments in ({}, {"qconfig_spec": {"encoder"}}, {"recipe": "int8"}, {"dtype": "uint8"}):
        found = report(quantize_dynamic(Model(), **arguments))
        names = {outcome.layer.name for outcome in found.layers}
        assert {"conv", "table", "bag", "lstm.l0", "lstm.l1", "cells.2"} <= names
        assert all(outcome.reason for outcome in found.left_float)


def test_one_layer_of_a_stack_stays_float() -> None:
    quantized = quantize_dynamic(Model(), {nn.LSTM: qc.default_dynamic_qconfig, "lstm.l1": None})
    found = {o.layer.name: o for o in report(quantized).layers}
    assert found["lstm.l0"].quantized and not found["lstm.l1"].quantized
    assert found["lstm.l1"].reason == "switched off by name in qconfig_spec"
    x = torch.randn(5, 2, 8)
    model = Model()
    everything = quantize_dynamic(model, {nn.LSTM})
    exact = model.lstm(x)[0]
    errors = [(q.lstm(x)[0] - exact).square().sum() for q in (quantized, everything)]
    assert 0 < errors[0] < errors[1]


def test_a_scheme_stands_where_a_qconfig_does() -> None:
    scheme = Scheme.from_dict("int8-accurate")
    quantized = quantize_dynamic(Model(), {"encoder.0": scheme})
    assert quantized.encoder[0].group == 128 and quantized.encoder[0].affine
    assert type(quantized.encoder[2]) is nn.Linear


def test_recipe_and_qconfig_spec_exclude_each_other() -> None:
    with pytest.raises(OptionError, match="give one of them"):
        quantize_dynamic(Model(), {nn.Linear}, recipe="int8")


def test_one_module_under_two_names_must_be_told_one_thing() -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": shared, "b": shared})
    with pytest.raises(OptionError, match="'a' and 'b' are one and the same module"):
        quantize_dynamic(model, {"a": qc.default_dynamic_qconfig, "b": None})
