"""Which modules qconfig_spec chooses: as torch.ao 2.13 did, and where Octavo says more."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from octavo import Scheme
from octavo.errors import NothingQuantizedError, OptionError
from octavo.torch import default_mapping, quantize_dynamic, report
from octavo.torch import qconfig as qc
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.qconfig.choice import QConfigChoice
from tests.torch.golden.selection_cases import CASES, Model, Shared

# Recorded by `golden/record_selection.py` of commit 50e4b228, with torch 2.13.
PATH = Path(__file__).parents[1] / "golden" / "selection.json"
GOLDEN = json.loads(PATH.read_text())
OURS = SimpleNamespace(
    default=qc.default_dynamic_qconfig,
    per_channel=qc.per_channel_dynamic_qconfig,
    float16=qc.float16_dynamic_qconfig,
    float_qparams=qc.float_qparams_weight_only_qconfig,
    mapping=default_mapping,
)


def converted(model: nn.Module) -> dict[str, str]:
    """Names of converted modules, all of one that has several, and how their weights are held."""
    found = {}
    names: dict[int, list[str]] = defaultdict(list)
    for name, module in model.named_modules(remove_duplicate=False):
        names[id(module)].append(name)
    for outcome in report(model).quantized:
        name = re.sub(r"\.l\d$", "", outcome.layer.name)
        for other in names[id(model.get_submodule(name))]:
            found[other] = outcome.scheme.split(",")[0]
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
    given_by_class = case == "attribute-of-class" and name.startswith("encoder")
    return isinstance(arguments.get("qconfig_spec"), dict) or given_to_parent or given_by_class


@pytest.mark.parametrize("case", GOLDEN["encoder.0"])
def test_explicit_qconfigs_give_the_integers_of_torch_ao(case: str) -> None:
    model, arguments = CASES[case](OURS)
    layer = quantize_dynamic(model, **arguments).encoder[0]
    expected = GOLDEN["encoder.0"][case]
    assert layer.integers().tolist() == expected["q"]
    scale = np.broadcast_to(np.float32(expected["scale"]), 8)
    np.testing.assert_array_equal(layer.scale.numpy(), scale)


def test_other_collections_are_as_good_as_a_set() -> None:
    for given in (frozenset({nn.GRU}), [nn.GRU], (nn.GRU,)):
        assert set(converted(quantize_dynamic(Model(), given))) == {"gru"}


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({"block.1"}, "int8"),
        ({"first"}, "int8"),
        ({nn.Linear: qc.default_dynamic_qconfig, "block.1": None}, ""),
        ({nn.Linear: None, "block.1": qc.per_channel_dynamic_qconfig}, "int8"),
        ({"block": qc.default_dynamic_qconfig, "first": None}, ""),
    ],
)
def test_a_module_in_two_places_is_held_as_either_of_its_names_says(spec: Any, held: str) -> None:
    quantized = quantize_dynamic(Shared(), spec)
    assert quantized.first is quantized.block[1]
    assert isinstance(quantized.first, QuantizedLinear) == bool(held)


@pytest.mark.parametrize(
    "spec",
    [
        {"block": qc.default_dynamic_qconfig},
        {"first": qc.default_dynamic_qconfig, "block.1": None},
        {"first": qc.default_dynamic_qconfig, "block.1": qc.per_channel_dynamic_qconfig},
    ],
)
def test_a_module_in_two_places_that_is_told_two_things_is_an_error(spec: Any) -> None:
    with pytest.raises(OptionError, match=r"'first' and 'block\.1' are one"):
        quantize_dynamic(Shared(), spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"encodr.0"}, "no module 'encodr.0'. Did you mean 'encoder.0'"),
        ({"encoder.0": "int8"}, "value for 'encoder.0' is 'int8'"),
        ({}, "is empty"),
        ({int}, "neither a module type"),
        ({"lstm.l2"}, "no module 'lstm.l2'. Did you mean 'lstm.l1'"),
        ({"nn.Linear"}, "'nn.Linear' is also a type"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_an_error(spec: Any, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        quantize_dynamic(Model(), spec)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dtype": torch.float32}, r"torch\.float16, torch\.qint8"),
        ({"dtype": torch.qint32}, r"torch\.float16, torch\.qint8"),
        ({"dtype": None}, r"torch\.float16, torch\.qint8"),
        *(
            ({"dtype": dtype}, "^dtype '.*4.*': weights of 4 bits come in blocks, by a recipe")
            for dtype in (torch.quint4x2, torch.int4, torch.uint4, "QInt4", "nf4")
        ),
        *(
            ({name: 4}, f"^{name}: there is no such argument; weights of 4 bits .*recipe='int4'")
            for name in ("bits", "group_size", "accuracy_level", "load_in_4bit")
        ),
        ({"dtype": "qint9"}, "^dtype: 'qint9' .*Did you mean 'qint8'"),
        ({"recipe": "int8", "dtype": torch.float16}, r"recipe and dtype \(torch.float16\)"),
        ({"mapping": {nn.Linear: nn.ReLU}}, r"mapping: ReLU \(for encoder\.0\)"),
        ({"mapping": {"Linear": QuantizedLinear}}, "mapping: the key 'Linear'"),
        ({"mapping": {int: QuantizedLinear}}, "mapping: the key <class 'int'>"),
    ],
)
def test_arguments_that_cannot_be_meant_are_errors(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        quantize_dynamic(Model(), **given)


@pytest.mark.parametrize("dtype", [torch.qint8, "qint8", "int8", torch.int8])
def test_int8_has_several_names(dtype: Any) -> None:
    assert isinstance(quantize_dynamic(Model(), dtype=dtype).encoder[0], QuantizedLinear)


def test_a_type_that_the_model_lacks_is_reported() -> None:
    quantized = quantize_dynamic(Model(False), {nn.Linear, nn.RNN, nn.EmbeddingBag})
    only = quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.LSTM})
    assert type(only[0]) is nn.Linear
    for model, kind in ((quantized, "RNN"), (quantized, "EmbeddingBag"), (only, "LSTM")):
        assert f"names {kind}; the model has none" in "\n".join(report(model).notes)


def test_nothing_to_quantize_is_an_error_by_default() -> None:
    with pytest.raises(NothingQuantizedError, match=r"(?s)allow_nothing=True.*1 Conv1d"):
        quantize_dynamic(nn.Sequential(nn.Conv1d(1, 1, 1)))


def test_every_layer_left_float_has_a_reason() -> None:
    for arguments in ({}, {"qconfig_spec": {"encoder"}}, {"recipe": "int8"}, {"dtype": "uint8"}):
        quantized = quantize_dynamic(Model(), **arguments)
        found = report(quantized)
        names = {outcome.layer.name for outcome in found.layers}
        assert {"conv", "table", "bag", "lstm.l0", "lstm.l1", "cells.2"} <= names
        assert all(outcome.reason for outcome in found.left_float)
        assert not any(b.is_quantized for b in quantized.buffers()), "a deprecated dtype of torch's"


def test_one_layer_of_a_stack_stays_float() -> None:
    quantized = quantize_dynamic(Model(), {nn.LSTM: qc.default_dynamic_qconfig, "lstm.l1": None})
    found = {o.layer.name: o for o in report(quantized).layers}
    assert found["lstm.l0"].quantized and not found["lstm.l1"].quantized
    assert quantized.lstm.storage == ["int8", "float32"]


def test_a_scheme_stands_where_a_qconfig_does() -> None:
    scheme = Scheme.from_dict("int8-accurate")
    quantized = quantize_dynamic(Model(), {"encoder.0": scheme})
    assert quantized.encoder[0].group == 128 and quantized.encoder[0].affine
    assert type(quantized.encoder[2]) is nn.Linear


class _Stepped(nn.Linear):
    def forward(self, x: Any) -> Any:
        return self.forward_impl(x)

    def forward_impl(self, x: Any) -> Any:
        return super().forward(x)


def subclass(base: type, name: str) -> Any:
    return type("Own", (base,), {name: lambda self, *args: -getattr(base, name)(self, *args)})


@pytest.mark.parametrize(
    ("layer", "base", "name"),
    [
        (subclass(nn.Linear, "__call__")(4, 4), nn.Linear, "__call__"),
        (subclass(nn.Conv1d, "_conv_forward")(4, 4, 3), nn.Conv1d, "_conv_forward"),
        (subclass(_Stepped, "forward_impl")(4, 4), _Stepped, "forward_impl"),
    ],
)
def test_a_subclass_that_computes_otherwise_stays_float(layer: Any, base: Any, name: str) -> None:
    mapping = default_mapping() | {_Stepped: QuantizedLinear}
    model = nn.Sequential(layer, nn.Linear(4, 4))
    for spec in ({base}, {"0"}):
        quantized = quantize_dynamic(model, spec, mapping=mapping)
        assert type(quantized[0]) is type(layer)
        reason = report(quantized).left_float[0].reason
        assert f"has a forward of its own ({name}), so {base.__name__}'s" in reason


def test_a_subclass_that_only_prints_otherwise_is_quantized() -> None:
    named = type("Named", (nn.Linear,), {"extra_repr": lambda self: "as Linear"})(4, 4)
    assert isinstance(quantize_dynamic(nn.Sequential(named))[0], QuantizedLinear)


@pytest.mark.parametrize(
    ("layer", "name"),
    [(nn.Linear(4, 4), "forward"), (nn.Conv1d(4, 4, 3), "_conv_forward")],
    ids=["forward", "conv-forward"],
)
def test_a_module_with_a_replaced_forward_stays_float(layer: Any, name: str) -> None:
    of_class = getattr(layer, name)
    setattr(layer, name, lambda *args: of_class(*args) + 1)
    model = nn.Sequential(layer, nn.Linear(4, 4))
    quantized = quantize_dynamic(model, {"0", "1"})
    assert type(quantized[0]) is type(layer)
    assert isinstance(quantized[1], QuantizedLinear)
    (left,) = report(quantized).left_float
    assert left.reason.startswith(f"its {name} was replaced on the module itself, so")


_CHANNELS = qc.PerChannelMinMaxObserver.with_args(dtype="int8", qscheme="per_channel_symmetric")
_AXIS_1, _NO_EPS = _CHANNELS.with_args(ch_axis=1), _CHANNELS.with_args(eps=0.0)


@pytest.mark.parametrize(
    ("layer", "observer", "words"),
    [
        (nn.Linear(4, 4), _AXIS_1, "ch_axis=1"),
        (nn.Embedding(9, 4), _AXIS_1, "ch_axis=1"),
        (nn.EmbeddingBag(9, 4), _AXIS_1, "ch_axis=1"),
        (nn.Conv2d(4, 4, 3), _AXIS_1, "ch_axis=1"),
        (nn.LSTM(4, 4), _AXIS_1, "ch_axis=1"),
        (nn.Embedding(9, 4, padding_idx=7), _NO_EPS, ""),
    ],
)
def test_what_a_later_layer_cannot_keep_leaves_the_model_as_it_was(
    layer: Any, observer: Any, words: str
) -> None:
    model = nn.ModuleDict({"first": nn.Linear(4, 4), "last": layer})
    wanted = qc.QConfig(qc.default_dynamic_qconfig.activation, observer)
    with pytest.raises(OptionError, match=f"^last: the qconfig's.*{words}"):
        quantize_dynamic(
            model, {nn.Linear: qc.default_dynamic_qconfig, "last": wanted}, inplace=True
        )
    assert type(model["first"]) is nn.Linear and model["last"] is layer


def _symmetric_uint8(high: int) -> Any:
    weight = qc.MinMaxObserver.with_args(
        dtype="uint8", qscheme="per_tensor_symmetric", quant_min=0, quant_max=high
    )
    return qc.QConfig(qc.default_dynamic_qconfig.activation, weight)


@pytest.mark.parametrize("layer", [nn.Linear(6, 5), nn.Conv1d(6, 5, 3), nn.LSTM(6, 5)])
@pytest.mark.parametrize("high", [200, 254])
def test_symmetric_uint8_in_a_range_of_its_own_has_no_zero_points(layer: Any, high: int) -> None:
    choice = QConfigChoice(_symmetric_uint8(high))
    name = "weight_ih_l0" if isinstance(layer, nn.LSTM) else "weight"
    weight = getattr(layer, name).detach()
    found = choice.integers(weight.numpy(), "x", symmetric=True)
    step = float(2 * weight.abs().max() / high)
    assert not choice.affine and found.zero_point is None
    assert found.q.dtype == np.int8 and np.abs(found.q).max() == high // 2
    np.testing.assert_allclose(found.scale, step, rtol=1e-6)
    held = found.q * np.float32(step)
    np.testing.assert_allclose(held, weight.numpy(), rtol=0, atol=step / 2 * 1.01)
    quantized = quantize_dynamic(nn.Sequential(layer), {"0": choice.qconfig})
    assert report(quantized).quantized


def test_symmetric_uint8_with_all_of_its_range_given_has_zero_points() -> None:
    wanted = _symmetric_uint8(255)  # its zero is 127: one more above it than int8 has
    assert QConfigChoice(wanted).affine
    linear = quantize_dynamic(nn.Sequential(nn.Linear(6, 5)), {"0": wanted})[0]
    assert linear.affine and set(linear.zero_point.tolist()) == {-1}
    left = report(quantize_dynamic(nn.Sequential(nn.Conv1d(6, 5, 3)), {"0": wanted})).left_float
    assert "filters have no zero points" in left[0].reason
    with pytest.raises(OptionError, match="use dtype int8 with qscheme per_tensor_symmetric"):
        quantize_dynamic(nn.Sequential(nn.LSTM(6, 5)), {"0": wanted})
