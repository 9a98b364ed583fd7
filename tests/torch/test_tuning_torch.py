"""PyTorch models as tuning sees them: decisions, builds, files, fingerprints."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import octavo.torch
from octavo.core.metrics import relative_error
from octavo.errors import (
    AlreadyQuantizedError,
    InputDataError,
    ModelError,
    OptionError,
    RecipeError,
)
from octavo.recipe import FLOAT, PRESETS, Recipe, Rule, Scheme
from octavo.torch import TorchTarget, inspect, load, quantize_dynamic, report
from tests.models import Attends, Speech, net
from tests.torch.tuning_models import speech, tied

INT8 = PRESETS["int8"]


def all_float(recipe: Recipe = INT8) -> Recipe:
    return replace(recipe, default=FLOAT, rules=())


def test_the_front_end_offers_it() -> None:
    configs = "Int8DynamicActivationInt4WeightConfig Int8DynamicActivationInt8WeightConfig"
    configs += " Int8DynamicActivationIntxWeightConfig IntxWeightOnlyConfig"
    parts = "MappingType PerAxis PerGroup PerRow PerTensor TorchTarget compare default_mapping"
    calls = "export_onnx inspect load qconfig quantize_ quantize_dynamic report save"
    assert sorted(octavo.torch.__all__) == f"{configs} {parts} {calls}".split()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("make", [Speech, tied, Attends])
def test_decisions_are_what_a_build_holds(make: Any, preset: str) -> None:
    target = TorchTarget(make())
    rules = (Rule(FLOAT, name="*.l1"),) if make is Speech else ()
    recipe = PRESETS[preset].with_rules_first(*rules)
    for _ in range(2):  # the second time from what was kept
        found = target.decisions(recipe)
        assert tuple(found) == inspect(make(), recipe).decisions
    outcomes = report(target.build(recipe).model).layers
    for decision, outcome in zip(found, outcomes, strict=True):
        assert outcome.layer == decision.layer
        assert outcome.quantized == (not decision.scheme.is_float)
        if outcome.quantized:
            assert outcome.scheme == decision.scheme.describe()
            assert "; ".join(outcome.notes) == decision.reason
        else:
            assert outcome.reason == decision.reason


def test_attention_that_stays_float_keeps_its_output_layer() -> None:
    target = TorchTarget(Attends())
    accurate = PRESETS["int8-accurate"].default
    for name, expected in [("look", (True, True)), ("look.out_proj", (False, True))]:
        rules = (Rule(FLOAT, name=name), Rule(accurate, name="look.out_proj"))
        recipe = INT8.with_rules_first(*rules)
        schemes = {d.layer.name: d for d in target.decisions(recipe)}
        found = schemes["look"].scheme.is_float, schemes["look.out_proj"].scheme.is_float
        assert found == expected
    assert "'look.out_proj'" in schemes["look.out_proj"].reason


@pytest.mark.real_time
def test_hundreds_of_rules_about_hundreds_of_layers_take_milliseconds() -> None:
    target = TorchTarget(nn.Sequential(*[nn.Linear(8, 8) for _ in range(384)]))
    accurate = PRESETS["int8-accurate"].default
    rules = [Rule(FLOAT if i % 3 else accurate, name=str(i)) for i in range(384)]
    recipe = Recipe("many", Scheme(), tuple(rules))
    found = target.decisions(recipe)
    assert [d.scheme.is_float for d in found] == [i % 3 > 0 for i in range(384)]

    def seconds() -> float:
        start = time.perf_counter()
        target.decisions(recipe)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(10)) < 0.01


def test_a_rule_that_matches_no_layer() -> None:
    with pytest.raises(RecipeError, match=r"'lstm\.l9' .*Did you mean 'lst"):
        TorchTarget(Speech()).decisions(INT8.with_rules_first(Rule(FLOAT, name="lstm.l9")))


def test_a_build_runs_on_arrays_and_is_what_quantize_dynamic_gives() -> None:
    model = speech()
    target = TorchTarget(model)
    built = target.build(INT8)
    x = np.random.default_rng(0).standard_normal((2, 7, 12), np.float32)
    expected = quantize_dynamic(model, recipe=INT8)
    y, (h, c) = expected(torch.from_numpy(x))
    outputs = built.run({"x": x})
    assert [type(out) for out in outputs] == [np.ndarray] * 3
    for out, tensor in zip(outputs, (y, h, c), strict=True):
        np.testing.assert_array_equal(out, tensor.numpy())
    assert not built.model.training
    assert built.bytes == report(expected).model_bytes_after
    assert built.bytes < target.float_model().bytes / 2.5
    assert built.report is not None
    assert (built.report.source, len(built.report.quantized)) == ("Speech", 4)


def test_with_every_layer_float_the_model_itself_is_returned() -> None:
    model = speech().eval()
    target = TorchTarget(model)
    built = target.build(all_float())
    assert built is target.float_model()
    assert built.model is model
    assert built.report is None
    assert built.bytes == sum(p.nbytes for p in model.parameters())


def test_a_model_in_training_mode_stays_in_it() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.9)).train()
    model[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    target = TorchTarget(model)
    x = np.ones((3, 8), np.float32)
    (first,), (second,) = (target.float_model().run({"0": x}) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert all(module.training for module in model.modules())
    assert target.float_model().model[0].weight is model[0].weight
    assert target.float_model().model[1].running_mean is not model[1].running_mean
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_calibration_is_refused() -> None:
    target = TorchTarget(Speech())
    for call in (
        lambda: target.build(INT8, []),
        lambda: target.save(INT8, Path("x"), []),
        lambda: target.peak_memory(None, {}, []),
    ):
        with pytest.raises(OptionError, match="calibration data"):
            call()


def test_what_is_no_float_model() -> None:
    with pytest.raises(AlreadyQuantizedError):
        TorchTarget(quantize_dynamic(Speech()))
    with pytest.raises(OptionError, match=r"model: .*not int"):
        TorchTarget(3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="example_inputs is a Tensor"):
        TorchTarget(Speech(), example_inputs=torch.ones(1))  # type: ignore[arg-type]
    target = TorchTarget("tests.torch.tuning_models:spech")
    with pytest.raises(ModelError, match="Did you mean 'speech'"):
        target.decisions(INT8)


def test_inputs_go_by_name_or_position_and_are_not_written_to() -> None:
    def forward(m: Any, a: Any, /, b: Any, *more: Any, scale: float = 1.0) -> Any:
        a += 1
        return [{"a": m.lin(a), "b": (b * scale, *more)}, None, "text"]

    target = TorchTarget(net(forward, lin=nn.Linear(4, 4)))
    a, b, c = (np.full((2, 4), v, np.float32) for v in (1, 2, 3))
    b.flags.writeable = False
    for built in (target.float_model(), target.build(INT8)):
        outputs = built.run({"1": b, "0": a, "2": c, "scale": 0.5})
        expected = built.model.lin(torch.full((2, 4), 2.0)).detach().numpy()
        np.testing.assert_array_equal(outputs[0], expected)
        np.testing.assert_array_equal(outputs[1], b * 0.5)
        np.testing.assert_array_equal(outputs[2], c)
        assert (a == 1).all()
        assert len(built.run({"a": a, "b": b})) == 2
        with pytest.raises(InputDataError, match="Did you mean 'scale'"):
            built.run({"0": a, "1": b, "scael": 2.0})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_floating_point_inputs_are_given_in_the_models_dtype(dtype: torch.dtype) -> None:
    target = TorchTarget(nn.Sequential(nn.Linear(6, 3)).to(dtype).eval())
    x = np.random.default_rng(0).standard_normal((2, 6))  # float64, as files have it
    tensor = target.float_model().model(torch.tensor(x, dtype=dtype)).detach()
    expected = (tensor.float() if dtype is torch.bfloat16 else tensor).numpy()
    (out,) = target.float_model().run({"input": x})
    assert out.dtype == expected.dtype
    np.testing.assert_array_equal(out, expected)
    (quantized,) = target.build(INT8).run({"input": x})  # its own tensors are integers
    assert 0 < np.abs(quantized - out).max() < 0.05


def test_a_saved_model_is_the_built_one(tmp_path: Path) -> None:
    target = TorchTarget("tests.torch.tuning_models:speech")
    path = tmp_path / f"best{target.output_suffix}"
    recipe = INT8.with_rules_first(Rule(FLOAT, name="lstm.l0"))
    found = target.save(recipe, path)
    assert found is not None
    assert (found.source, found.output) == ("tests.torch.tuning_models:speech", str(path))
    assert [o.layer.name for o in found.left_float] == ["lstm.l0"]
    loaded = load(path, speech)
    x = torch.randn(2, 5, 12)
    (out, *_) = target.build(recipe).run({"x": x.numpy()})
    np.testing.assert_array_equal(out, loaded(x)[0].detach().numpy())
    assert target.save(all_float(), tmp_path / "float.safetensors").quantized == ()


def test_a_factory_is_pickled_by_name_and_a_module_as_it_is() -> None:
    by_name = TorchTarget("tests.torch.tuning_models:speech")
    by_name.fingerprint()
    data = pickle.dumps(by_name)
    assert len(data) < 300
    again = pickle.loads(data)
    assert again.label == by_name.label == "tests.torch.tuning_models:speech"
    assert again.fingerprint() == by_name.fingerprint()
    assert again.float_model().model is not by_name.float_model().model
    target = TorchTarget(speech(), example_inputs=(torch.ones(1, 2, 12),))
    again = pickle.loads(pickle.dumps(target))
    assert again.fingerprint() == target.fingerprint() == by_name.fingerprint()
    assert again.made_up({}, 0)[0].keys() == {"x"}


def test_a_fingerprint_changes_with_anything_that_a_build_depends_on() -> None:
    def print_of(change: Any = lambda model: None) -> str:
        torch.manual_seed(1)
        layers = [nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4, dtype=torch.bfloat16)]
        model = nn.Sequential(*layers)
        model.register_buffer("table", torch.arange(6.0), persistent=False)
        made = change(model)
        return TorchTarget(made if isinstance(made, nn.Module) else model).fingerprint()

    def weight(model: Any) -> None:
        model[2].weight.data[0, 0] += 1

    def tied(model: Any) -> None:
        model[0].weight = nn.Parameter(model[0].weight.detach().clone())  # equal, another object

    changes = [
        weight,
        lambda model: model.table.mul_(2),
        lambda model: setattr(model[1], "eps", 1e-3),
        lambda model: nn.Sequential(*model),
        lambda model: model.double(),
        lambda model: setattr(model[0], "weight", nn.Parameter(model[0].weight[:, [1, 0, 2, 3]])),
        lambda model: model.append(nn.ReLU()),
    ]
    found = [print_of(change) for change in changes]
    assert len({print_of(), *found}) == 1 + len(changes)
    assert print_of() == print_of(tied) == print_of(nn.Module.eval)


def test_schemes_that_a_layer_may_be_raised_to() -> None:
    torch.manual_seed(0)
    target = TorchTarget(nn.Linear(1024, 64))
    x = np.random.default_rng(0).standard_normal((8, 1024), np.float32)
    x[:, 5] = 50  # one group of 128 has a range of its own
    (expected,) = target.float_model().run({"input": x})
    lost = []
    for scheme in (Scheme(), *target.raised()):
        (out,) = target.build(Recipe("one", scheme)).run({"input": x})
        lost.append(relative_error(expected, out))
    assert lost[0] > 2 * lost[1] > 100 * lost[2] > 0
