"""What quantizing some layers does to the output: one model with switches, against conversions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from octavo.errors import InputDataError, ModelError, RecipeError
from octavo.onnx import OnnxTarget
from octavo.onnx.tuning import sensitivity, target
from octavo.onnx.tuning.sensitivity import worst_error
from octavo.recipe import FLOAT, PRESETS, Kind, Recipe, Rule, Scheme
from tests import graphs
from tests.graphs import FLOAT16, Case, mlp, normal, text

INT8 = PRESETS["int8"]
EVERYTHING = replace(
    INT8,
    name="everything",
    rules=tuple(Rule(Scheme(), kind=kind) for kind in (Kind.CONV, Kind.ACTIVATION_MATMUL)),
)
LINEAR, FEED = graphs.linear()


@pytest.fixture(autouse=True)
def switches_for_few_sets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here is the model with switches."""
    monkeypatch.setattr(target, "SWITCHED_FROM", 0)


def branches() -> Case:
    """Layers outside of an If and in both of its branches, which read x from outside."""
    one, two = (
        f"""body{i} () => (float[] c{i}) {{ [inner{i}] a{i} = MatMul (h, w{i})
            b{i} = Relu (a{i}) [last{i}] c{i} = MatMul (b{i}, w3) }}"""
        for i in (1, 2)
    )
    body = f"""[outer] h = MatMul (x, w0)
        y = If (c) <then_branch = {one}, else_branch = {two}>"""
    weights = {f"w{i}": normal(32, 32, seed=i) for i in range(4)}
    model = text(body, "float[m, 32] x, bool c", weights=weights)
    return model, {"x": normal(4, 32), "c": np.array(True)}


def loop() -> Case:
    """A layer inside a Loop whose output is the state and a scan output of the body."""
    body = """y, all = Loop (n, , x) <body = loop (int64 i, bool go, float[m, 32] state)
        => (bool on, float[m, 32] next, float[m, 32] seen)
        { [step] next = MatMul (state, w) on = Identity (go) seen = Identity (next) }>"""
    weights = {"w": normal(32, 32) / 6}
    model = text(body, "float[m, 32] x, int64 n", "float[] y, float[] all", weights)
    return model, {"x": normal(4, 32), "n": np.array(3)}


def branching_outputs() -> Case:
    """A layer whose output is one of the model and another layer's input; the other ends it."""
    weights = {"w0": normal(32, 32), "w1": normal(32, 32, seed=1), "b": normal(32, seed=2)}
    body = "[first] h = MatMul (x, w0) [second] y = Gemm (h, w1, b)"
    model = text(body, "float[m, 32] x", "float[m, 32] h, float[m, 32] y", weights)
    return model, {"x": normal(4, 32)}


def unnamed_outputs() -> Case:
    """An LSTM of which only the last output is read, in the middle of a model."""
    weights = {"w": normal(1, 64, 24), "r": normal(1, 64, 16, seed=1), "v": normal(16, 8, seed=2)}
    body = """none, nothing, yc = LSTM <hidden_size = 16> (x, w, r) t = Tanh (yc)
        [fc] y = MatMul (t, v)"""
    model = text(body, "float[t, b, 24] x", weights=weights)
    model.graph.node[0].output[:2] = ["", ""]
    return model, {"x": normal(5, 2, 24)}


def half() -> Case:
    model, feed = graphs.linear()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = FLOAT16
    return model, {"x": feed["x"].astype(np.float16)}


CASES: dict[str, tuple[Callable[[], Case], Recipe]] = {
    "layers in a row": (graphs.linear, INT8),
    "per tensor": (graphs.linear, PRESETS["int8-per-tensor"]),
    "blocks": (graphs.wide, PRESETS["int8-block"]),
    "float16 weights": (graphs.wide, PRESETS["float16"]),
    "bias, gelu and residual": (graphs.wide, INT8),
    "gemm": (graphs.gemm, INT8),
    "shared input": (graphs.grouped, INT8),
    "shared weight": (graphs.tied, INT8),
    "convolution": (graphs.conv, EVERYTHING),
    "product of activations": (graphs.products, EVERYTHING),
    "three outputs": (lambda: graphs.recurrent("LSTM"), EVERYTHING),
    "gru": (lambda: graphs.recurrent("GRU", linear_before_reset=1), EVERYTHING),
    "outputs that are left out": (unnamed_outputs, INT8),
    "if": (branches, INT8),
    "loop": (loop, INT8),
    "outputs of the model": (branching_outputs, INT8),
    "float16 model": (half, INT8),
}


def by_conversion(ours: OnnxTarget, recipe: Recipe, layers: Sequence[str], feeds: Any) -> float:
    """The error of a model of its own, in which all other layers are float by a rule."""
    others = [d.layer.name for d in ours.decisions(recipe) if d.layer.name not in layers]
    built = ours.build(recipe.with_rules_first(*(Rule(FLOAT, name=n, reason="") for n in others)))
    model = ours.float_model()
    return worst_error([model.run(f) for f in feeds], [built.run(f) for f in feeds])


def sets_of(ours: OnnxTarget, recipe: Recipe) -> list[list[str]]:
    """Each layer alone, none, all, and those that stay float in any case."""
    decisions = ours.decisions(recipe)
    held = [d.layer.name for d in decisions if not d.scheme.is_float]
    return [*([name] for name in held), [], held, [d.layer.name for d in decisions]]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("name", CASES)
def test_switches_tell_what_conversions_do(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, recipe = CASES[name]
    model, feed = make()
    ours = OnnxTarget(model, target=target, threads=1)
    feeds: list[Mapping[str, Any]] = [feed]
    sets = sets_of(ours, recipe)
    expected = [by_conversion(ours, recipe, layers, feeds) for layers in sets]
    # Nothing is converted for itself here: the switches alone must answer.
    monkeypatch.setattr(sensitivity.Sensitivity, "_converted", lambda *_: pytest.fail("converted"))
    errors = ours.errors(recipe, sets, feeds)
    # Where float nodes are fused otherwise, float32 rounds otherwise: some 1e-14 of the error.
    assert errors == pytest.approx(expected, rel=1e-4, abs=1e-12)
    if target == "native" or name != "gru":  # which stays float in a portable file
        assert max(errors[: len(sets) - 3]) > 0
        assert errors[-1] == errors[-2] > 1e-9


def test_qdq_models_have_switches_too() -> None:
    ours = OnnxTarget(LINEAR, quant_format="qdq")
    sets = [["layer1"], ["layer0", "layer2"]]
    expected = [by_conversion(ours, INT8, layers, [FEED]) for layers in sets]
    assert ours.errors(INT8, sets, [FEED]) == pytest.approx(expected, rel=1e-4, abs=1e-12)


def test_all_feeds_count_as_one() -> None:
    ours = OnnxTarget(LINEAR)
    feeds = [FEED, {"x": normal(9, 64, seed=5)}]
    (error,) = ours.errors(INT8, [["layer0"]], feeds)
    whole = {"x": np.concatenate([f["x"] for f in feeds])}
    assert error == pytest.approx(ours.errors(INT8, [["layer0"]], [whole])[0], rel=1e-6)
    assert error != ours.errors(INT8, [["layer0"]], [FEED])[0]


def test_many_layers_are_switched_one_by_one() -> None:
    ours = OnnxTarget(mlp(80, 16), threads=1)
    errors = ours.errors(INT8, [[], ["layer7"], ["layer79"]], [{"x": normal(2, 16)}])
    assert errors[0] == 0 < errors[2] != errors[1] > 0


@pytest.mark.parametrize("target", ["portable", "native"])
def test_what_protobuf_cannot_hold_goes_to_a_data_file(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feed = graphs.wide()
    expected = OnnxTarget(model, target=target).errors(INT8, [["up"], ["down"]], [feed])
    files: list[list[str]] = []
    opened = sensitivity.open_session

    def seen(path: Path, threads: int | None) -> Any:
        files.append(sorted(file.name for file in path.parent.iterdir()))
        return opened(path, threads)

    monkeypatch.setattr(sensitivity, "open_session", seen)
    monkeypatch.setattr("octavo.onnx.write.save.PROTOBUF_LIMIT", 100_000)
    assert OnnxTarget(model, target=target).errors(INT8, [["up"], ["down"]], [feed]) == expected
    assert files == [["model.onnx", "model.onnx.data"]]


def test_without_switches_each_set_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [["layer0"], [], ["layer1", "layer2"]]
    expected = OnnxTarget(LINEAR).errors(INT8, sets, [FEED])

    def refuse(*_: Any) -> None:
        raise ModelError("no switches")

    monkeypatch.setattr("octavo.onnx.tuning.writing.add_switches", refuse)
    assert OnnxTarget(LINEAR).errors(INT8, sets, [FEED]) == expected


def test_switches_that_do_not_give_the_float_model_are_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = OnnxTarget(LINEAR).errors(INT8, [["layer0"]], [FEED])
    outputs = sensitivity._Switched.outputs

    def wrong(self: Any, layers: Any, feeds: Any) -> Any:
        return [[a * 1.01 for a in run] for run in outputs(self, layers, feeds)]

    monkeypatch.setattr(sensitivity._Switched, "outputs", wrong)
    assert OnnxTarget(LINEAR).errors(INT8, [["layer0"]], [FEED]) == expected


def test_a_few_sets_are_converted_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [{"layer1"}, {"layer0", "layer2"}]
    switched = OnnxTarget(LINEAR).errors(INT8, sets, [FEED])
    monkeypatch.setattr(target, "SWITCHED_FROM", 3)
    made: list[object] = []
    monkeypatch.setattr(sensitivity, "_Switched", lambda *a: made.append(a))
    assert OnnxTarget(LINEAR).errors(INT8, sets, [FEED]) == pytest.approx(switched, rel=1e-4)
    assert made == []


def test_numbers_that_are_not_finite_are_an_infinite_error() -> None:
    """One large weight takes the scale of its tensor, so that the small ones become 0."""
    w = normal(64, 64)
    w[:, 1], w[0, 1] = 1e-4, 1e-4
    w[0, 0] = 100
    body = "[fc] h = MatMul (x, w) g = Gather <axis = 1> (h, second) y = Reciprocal (g)"
    model = text(body, "float[m, 64] x", weights={"w": w, "second": np.array([1])})
    feed = {"x": np.abs(normal(4, 64))}
    recipe = PRESETS["int8-per-tensor"]
    assert OnnxTarget(model).errors(recipe, [["fc"], []], [feed]) == [math.inf, 0]


def test_layers_and_feeds_that_the_model_does_not_have_are_refused() -> None:
    ours = OnnxTarget(LINEAR)
    with pytest.raises(RecipeError, match="no layer 'layer7'"):
        ours.errors(INT8, [["layer0"], ["layer7"]], [FEED])
    with pytest.raises(InputDataError, match="no input 'z'"):
        ours.errors(INT8, [["layer0"]], [{"z": FEED["x"]}])


def test_worst_error_takes_the_worst_output_and_only_finite_numbers() -> None:
    a, b = np.array([1.0, 2.0], np.float32), np.array([np.inf, 2.0], np.float32)
    n = np.array([1, 2])
    assert worst_error([[a, a, n]], [[a, a * 1.1, n + 5]]) == pytest.approx(0.005, rel=1e-5)
    assert worst_error([[b]], [[b * 1.1]]) == pytest.approx(0.005, rel=1e-5)
    assert worst_error([[a]], [[b]]) == math.inf
    assert worst_error([[a]], [[a[:1]]]) == math.inf
    assert worst_error([[n]], [[n * 2]]) == pytest.approx(0.5)  # no other outputs: these count
