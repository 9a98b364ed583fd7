"""What recurrent layers refuse: at conversion with a reason, at creation and in a call by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.errors import ModelError, NothingQuantizedError
from octavo.recipe import ActivationScheme, Granularity, Recipe, Scheme, WeightScheme
from tests.graphs import FLOAT, convert
from tests.native_target.recurrent_layers import Layer, native, opened, outputs

# --- at conversion ---


def changed(layer: Layer, **attributes: Any) -> onnx.ModelProto:
    model = layer.model()
    for name, value in attributes.items():
        model.graph.node[0].attribute.append(helper.make_attribute(name, value))
    return model


def with_peepholes(numbers: np.ndarray, **attributes: Any) -> onnx.ModelProto:
    model = changed(Layer("lstm"), **attributes)
    model.graph.initializer.append(numpy_helper.from_array(numbers.astype(np.float32), "P"))
    names = model.graph.node[0].input
    names.extend([""] * (7 - len(names)) + ["P"])
    return model


def with_computed(name: str) -> onnx.ModelProto:
    """The weight is an input of the graph."""
    model = Layer("gru").model()
    (stored,) = (i for i in model.graph.initializer if i.name == name)
    model.graph.input.append(helper.make_tensor_value_info(name, FLOAT, stored.dims))
    model.graph.initializer.remove(stored)
    return model


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "peepholes": (lambda: with_peepholes(np.ones((1, 60))), r"it has peepholes \(its P\)"),
    "all-that-is-missing": (
        lambda: with_peepholes(np.ones((1, 60)), activations=["HardSigmoid", "Tanh", "Tanh"]),
        "its activations are HardSigmoid, Tanh, Tanh; .* the same, and it has peepholes "
        r"\(its P\), which the kernels have not; target portable holds it in int8",
    ),
    "lstm-activations": (
        lambda: changed(Layer("lstm"), activations=["Sigmoid", "Relu", "Tanh"]),
        "its activations are Sigmoid, Relu, Tanh; the kernels have sigmoid, tanh, tanh",
    ),
    "gru-activations": (
        lambda: changed(Layer("gru"), activations=["HardSigmoid", "Tanh"]),
        "its activations are HardSigmoid, Tanh; the kernels have sigmoid, tanh",
    ),
    "two-activations": (
        lambda: changed(Layer("tanh", direction="bidirectional"), activations=["Tanh", "Relu"]),
        "its activations are Tanh, Relu; the kernels have tanh or relu, in all directions the same",
    ),
    "W-is-computed": (lambda: with_computed("W"), "its W is computed while the model runs"),
    "R-is-computed": (lambda: with_computed("R"), "its R is computed while the model runs"),
    "B-is-computed": (lambda: with_computed("B"), "its B is computed while the model runs"),
    "too-many-inputs": (
        lambda: Layer("tanh", inputs=32641, hidden=2, steps=1).model(),
        "32641 inputs; the kernels have up to 32640",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_stays_float_with_a_reason(tmp_path: Path, case: str) -> None:
    make, reason = REFUSED[case]
    with pytest.raises(NothingQuantizedError, match=reason):
        convert(make(), tmp_path, target="native")


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_said_of_target_portable_is_so(tmp_path: Path, case: str) -> None:
    model, reason = REFUSED[case][0](), ""
    try:
        convert(model, tmp_path, target="native")
    except NothingQuantizedError as error:
        reason = str(error)
    if "target portable holds it" in reason:
        assert "DynamicQuantizeLSTM" in convert(model, tmp_path).ops
    elif case in ("peepholes", "lstm-activations"):
        pytest.fail(reason)


def test_what_changes_nothing_is_taken(tmp_path: Path) -> None:
    """Peepholes of zeros, activations written out, alphas that no activation reads."""
    layer = Layer("lstm", outs=("Y",))
    expected = outputs(layer, tmp_path)["Y"]
    spelt = changed(layer, activations=["Sigmoid", "tanh", "TANH"], activation_alpha=[0.3])
    for model in (with_peepholes(np.zeros((1, 60))), spelt):
        done = convert(model, tmp_path, target="native")
        assert np.array_equal(opened(done.path).run(["Y"], layer.feeds)[0], expected)


def scheme(weight: dict[str, Any], activation: dict[str, Any]) -> Recipe:
    return Recipe("one", Scheme(WeightScheme(**weight), ActivationScheme(**activation)))


TENSOR, GROUP = Granularity.TENSOR, Granularity.GROUP
NOTED: dict[str, tuple[Recipe, list[str]]] = {
    "affine": (
        scheme({"symmetric": False}, {}),
        ["symmetric int8 weights: recurrent layers know no other"],
    ),
    "whole-tensor": (
        scheme({"granularity": TENSOR, "observer": "histogram"}, {"granularity": TENSOR}),
        [
            "activations per row: target native has no scale for a whole tensor",
            "weights per channel: recurrent layers know no other",
        ],
    ),
    "groups": (
        scheme({}, {"granularity": GROUP, "group": 128}),
        ["activations per row: recurrent layers have no groups of 128"],
    ),
}


@pytest.mark.parametrize("case", NOTED)
def test_other_schemes_become_the_one_there_is(tmp_path: Path, case: str) -> None:
    recipe, notes = NOTED[case]
    layer = Layer("gru")
    done = native(layer, tmp_path, recipe=recipe)
    outcome = done.outcome("layer")
    assert list(outcome.notes) == notes
    assert outcome.scheme == "int8 per channel, activations per row"
    found = opened(done.path).run(["Y"], layer.feeds)[0]
    assert np.array_equal(found, layer.by_core()["Y"])


WEIGHTS_ONLY: dict[str, tuple[str | Recipe, str]] = {
    "blocks": ("int8-block", "int8 per channel and row: recurrent layers of target native have no"),
    "channels": (
        Recipe("one", Scheme(WeightScheme(), None)),
        "activations per row: the kernels of recurrent layers take integers",
    ),
}


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("case", WEIGHTS_ONLY)
def test_recipes_of_weights_alone_take_the_operators_too(
    tmp_path: Path, kind: str, case: str
) -> None:
    """Not ONNX Runtime's DynamicQuantizeLSTM, which quantizes activations as well, and coarser."""
    recipe, note = WEIGHTS_ONLY[case]
    layer = Layer(kind)
    done = native(layer, tmp_path, recipe=recipe)
    outcome = done.outcome("layer")
    assert "DynamicQuantizeLSTM" not in done.ops
    assert note in " ".join(outcome.notes)
    assert outcome.scheme == "int8 per channel, activations per row"
    assert np.array_equal(opened(done.path).run(["Y"], layer.feeds)[0], layer.by_core()["Y"])


# --- when a session is made ---


def with_attribute(model: onnx.ModelProto, name: str, value: Any) -> None:
    attributes = model.graph.node[0].attribute
    for a in list(attributes):
        if a.name == name:
            attributes.remove(a)
    attributes.append(helper.make_attribute(name, value))


def with_constant(model: onnx.ModelProto, index: int, change: Callable[[Any], Any]) -> None:
    name = model.graph.node[0].input[index]
    (stored,) = (i for i in model.graph.initializer if i.name == name)
    array = change(numpy_helper.to_array(stored).copy())
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))


def damaged(array: np.ndarray) -> np.ndarray:
    array[0, 0, 0, 0, 0] ^= 1
    return array


def scaled(array: np.ndarray, value: float) -> np.ndarray:
    array[0, 3] = value
    return array


BROKEN: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "W": (lambda m: with_constant(m, 1, damaged), "W does not hold what was written"),
    "R": (lambda m: with_constant(m, 3, damaged), "R does not hold what was written"),
    "R-is-short": (lambda m: with_constant(m, 3, lambda a: a[:, :2]), r"R has shape \[1, 2, 5"),
    "W-scale": (lambda m: with_constant(m, 2, lambda a: scaled(a, 0)), r"W_scale\[3\] is 0"),
    "R-scale": (lambda m: with_constant(m, 4, lambda a: scaled(a, np.nan)), r"R_scale\[3\] is nan"),
    "B": (lambda m: with_constant(m, 5, lambda a: a[:, :1]), r"B has shape \[1, 1, 96\]"),
    "hidden": (lambda m: with_attribute(m, "hidden_size", 0), "hidden_size is 0, not in 1..32640"),
    "inputs": (lambda m: with_attribute(m, "input_size", 32641), "input_size is 32641, not in 1.."),
    "format": (lambda m: with_attribute(m, "weight_format", "int4"), "are in the format 'int4'"),
    "direction": (lambda m: with_attribute(m, "direction", "up"), "direction 'up' is unknown"),
    "layout": (lambda m: with_attribute(m, "layout", 2), "layout is 2; it is 0 or 1"),
    "clip": (lambda m: with_attribute(m, "clip", -1.0), "clip is -1.0+; it is 0 .none. or"),
    "given": (lambda m: with_attribute(m, "given", "P"), "given holds 'P'; this operator knows"),
    "given-less": (lambda m: with_attribute(m, "given", ""), "names 0 inputs behind B; the node"),
    "outputs": (lambda m: with_attribute(m, "outputs", 1), "outputs is 1; the node has 2"),
    "reset": (
        lambda m: with_attribute(m, "linear_before_reset", 2),
        "linear_before_reset is 2; it is 0 or 1",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_node_is_an_error_of_the_session(tmp_path: Path, case: str) -> None:
    done = native(Layer("gru", states=("initial_h",)), tmp_path)
    breaks, message = BROKEN[case]
    breaks(done.proto)
    path = tmp_path / "broken.onnx"
    onnx.save(done.proto, path)
    with pytest.raises(ModelError, match=rf"node 'layer' \(ai.octavo.GRU\): .*{message}"):
        opened(path)


def test_an_unknown_activation(tmp_path: Path) -> None:
    done = native(Layer("relu"), tmp_path)
    with_attribute(done.proto, "activation", "gelu")
    onnx.save(done.proto, tmp_path / "broken.onnx")
    with pytest.raises(ModelError, match="activation 'gelu' is unknown; there are tanh, relu"):
        opened(tmp_path / "broken.onnx")


# --- in a call ---

X = np.zeros((5, 3, 7), np.float32)
LENGTHS = np.array([5, 4, 3], np.int32)
H = np.zeros((1, 3, 20), np.float32)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too-long": (
        {"sequence_lens": np.array([5, 6, 0], np.int32)},
        r"sequence_lens\[1\] is 6, not in 0..5",
    ),
    "negative": (
        {"sequence_lens": np.array([5, 4, -1], np.int32)},
        r"sequence_lens\[2\] is -1, not in 0..5",
    ),
    "too-few": ({"sequence_lens": LENGTHS[:2]}, r"sequence_lens has shape \[2\]"),
    "inputs": ({"X": np.zeros((5, 3, 8), np.float32)}, r"X has shape \[5, 3, 8\]; .*\[T, B, 7\]"),
    "states": ({"initial_h": H[:, :2]}, r"initial_h has shape \[1, 2, 20\]; .*\[1, 3, 20\]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(tmp_path: Path, case: str) -> None:
    layer = Layer("lstm", states=("initial_h", "initial_c"), lengths=(5, 4, 3))
    done = native(layer, tmp_path)
    for i in done.proto.graph.input:  # open shapes: ONNX Runtime itself would refuse others
        i.type.tensor_type.ClearField("shape")
    onnx.save(done.proto, tmp_path / "open.onnx")
    model = opened(tmp_path / "open.onnx")
    feeds, message = WRONG[case]
    given = {"X": X, "sequence_lens": LENGTHS, "initial_h": H, "initial_c": H}
    with pytest.raises(Exception, match=rf"node 'layer' \(ai.octavo.LSTM\): {message}"):
        model.run(None, given | feeds)
    assert np.isfinite(model.run(None, given)[0]).all()
