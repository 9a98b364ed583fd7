"""Recurrent layers in models: what is taken, what stays float and why, what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.errors import NothingQuantizedError
from octavo.recipe import ActivationScheme, Granularity, Recipe, Scheme, WeightScheme
from tests import graphs
from tests.graphs import BOOL, FLOAT, FLOAT16, INT8, Converted, error, node, run
from tests.native_target.forms import branch, convert, spelt
from tests.native_target.nodes import REFUSALS, Change, puts, sets
from tests.native_target.nodes import opened as opened_proto
from tests.native_target.recurrent_layers import Layer, native, opened, outputs


def test_inside_a_branch(tmp_path: Path) -> None:
    """The operator's constants lie in the graph of its node."""
    layer = Layer("gru", outs=("Y",))
    inner = layer.model().graph
    then = helper.make_graph(list(inner.node), "then", [], list(inner.output))
    other = branch("Y0", "Y0=Identity(z)", {"z": np.zeros((1, 1, 1, 1), np.float32)})
    choice = node("If", ["c"], ["out"], then_branch=then, else_branch=other)
    model = spelt([choice], {"c": (BOOL, ()), "X": ["T", "B", 7]}, {}, ["out"])
    model.graph.initializer.extend(layer.model().graph.initializer)
    done = convert(model, tmp_path)
    (found,) = opened(done.path).run(None, layer.feeds | {"c": np.array(True)})
    assert np.array_equal(found, layer.by_core()["Y"])


def test_two_layers_share_their_weights(tmp_path: Path) -> None:
    layer = Layer("lstm", outs=("Y",))
    model = layer.model()
    twin = onnx.NodeProto()
    twin.CopyFrom(model.graph.node[0])
    twin.name, twin.output[0] = "twin", "Z"
    model.graph.node.append(twin)
    model.graph.output.append(helper.make_tensor_value_info("Z", FLOAT, None))
    done = convert(model, tmp_path)
    assert sum(len(i.dims) == 5 for i in done.proto.graph.initializer) == 2
    for found in opened(done.path).run(None, layer.feeds):
        assert np.array_equal(found, layer.by_core()["Y"])
    assert done.outcome("twin").bytes_after == 0


def recast(layer: Layer, old: type, new: type) -> None:
    """Changes the type of a layer's weights and feeds."""
    for arrays in (layer.weights, layer.feeds):
        arrays |= {n: a.astype(new) for n, a in arrays.items() if a.dtype == old}


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_float16(tmp_path: Path, kind: str) -> None:
    """Casts around the operator; its weights are quantized from what float16 holds."""
    states = ("initial_h", "initial_c") if kind == "lstm" else ("initial_h",)
    layer = Layer(kind, states=states, lengths=(5, 2, 4), layout=1)
    recast(layer, np.float32, np.float16)
    model = layer.model()
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = FLOAT16
    found = opened(convert(model, tmp_path).path).run(list(layer.names), layer.feeds)
    recast(layer, np.float16, np.float32)
    for array, expected in zip(found, layer.by_core().values(), strict=True):
        assert array.dtype == np.float16
        assert np.array_equal(array, expected.astype(np.float16))


@pytest.mark.parametrize(
    "changes", [{}, {"clip": 0.7}, {"bias": False, "direction": "bidirectional"}], ids=str
)
def test_input_forget_couples_the_gates(tmp_path: Path, changes: dict[str, Any]) -> None:
    """f is 1 - i, as in ONNX Runtime; not coupled, the outputs are others."""
    layer = Layer("lstm", **changes)
    coupled, apart = changed(layer, input_forget=1), layer.model()
    done = convert(coupled, tmp_path)
    assert [n.domain for n in done.proto.graph.node] == ["ai.octavo"]
    names = [o.name for o in coupled.graph.output]
    exact, other = (run(m, layer.feeds, names) for m in (coupled, apart))
    for y, a, b in zip(opened(done.path).run(names, layer.feeds), exact, other, strict=True):
        assert error(y, a) < INT8 < error(a, b) / 4


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
    model = Layer("gru").model()
    (stored,) = (i for i in model.graph.initializer if i.name == name)
    model.graph.input.append(helper.make_tensor_value_info(name, FLOAT, stored.dims))
    model.graph.initializer.remove(stored)
    return model


PORTABLE = "target portable holds it"
REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "peepholes": (lambda: with_peepholes(np.ones((1, 60))), rf"peepholes \(its P\).*{PORTABLE}"),
    "all-that-is-missing": (
        lambda: with_peepholes(np.ones((1, 60)), activations=["HardSigmoid", "Tanh", "Tanh"]),
        rf"activations are HardSigmoid, Tanh, Tanh; .* peepholes \(its P\).*{PORTABLE}",
    ),
    "lstm-activations": (
        lambda: changed(Layer("lstm"), activations=["Sigmoid", "Relu", "Tanh"]),
        f"activations are Sigmoid, Relu, Tanh; .* sigmoid, tanh, tanh.*{PORTABLE}",
    ),
    "gru-activations": (
        lambda: changed(Layer("gru"), activations=["HardSigmoid", "Tanh"]),
        "activations are HardSigmoid, Tanh; .* sigmoid, tanh",
    ),
    "two-activations": (
        lambda: changed(Layer("tanh", direction="bidirectional"), activations=["Tanh", "Relu"]),
        "activations are Tanh, Relu; .* tanh or relu, in all directions the same",
    ),
    "W-is-computed": (lambda: with_computed("W"), "its W is computed"),
    "R-is-computed": (lambda: with_computed("R"), "its R is computed"),
    "B-is-computed": (lambda: with_computed("B"), "its B is computed"),
    "too-many-inputs": (
        lambda: Layer("tanh", inputs=32641, hidden=2, steps=1).model(),
        "32641 inputs; .* 32640",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_stays_float_with_a_reason(tmp_path: Path, case: str) -> None:
    """What is said of target portable is so."""
    make, reason = REFUSED[case]
    with pytest.raises(NothingQuantizedError, match=reason) as caught:
        convert(make(), tmp_path)
    if PORTABLE in str(caught.value):
        assert "DynamicQuantizeLSTM" in graphs.convert(make(), tmp_path).ops


def test_what_changes_nothing_is_taken(tmp_path: Path) -> None:
    """Peepholes of zeros, activations written out, alphas that no activation reads."""
    layer = Layer("lstm", outs=("Y",))
    expected = outputs(layer, tmp_path)["Y"]
    spelt = changed(layer, activations=["Sigmoid", "tanh", "TANH"], activation_alpha=[0.3])
    for model in (with_peepholes(np.zeros((1, 60))), spelt):
        found = opened(convert(model, tmp_path).path).run(["Y"], layer.feeds)[0]
        assert np.array_equal(found, expected)


def scheme(weight: dict[str, Any], activation: dict[str, Any] | None) -> Recipe:
    held = None if activation is None else ActivationScheme(**activation)
    return Recipe("one", Scheme(WeightScheme(**weight), held))


TENSOR, GROUP = Granularity.TENSOR, Granularity.GROUP
PER_ROW = "activations per row: "
NOTED: dict[str, tuple[str, str | Recipe, list[str]]] = {
    "affine": ("gru", scheme({"symmetric": False}, {}), ["symmetric int8 weights"]),
    "whole-tensor": (
        "gru",
        scheme({"granularity": TENSOR, "observer": "histogram"}, {"granularity": TENSOR}),
        [f"{PER_ROW}target native has no scale for a whole tensor", "weights per channel"],
    ),
    "groups": (
        "gru",
        scheme({}, {"granularity": GROUP, "group": 128}),
        [f"{PER_ROW}recurrent layers have no groups of 128"],
    ),
    # Weights alone: not DynamicQuantizeLSTM, which quantizes activations as well, and coarser.
    "blocks": ("lstm", "int8-block", ["int8 per channel and row"]),
    "blocks of a GRU": ("gru", "int8-block", ["int8 per channel and row"]),
    "blocks of an RNN": ("tanh", "int8-block", ["int8 per channel and row"]),
    "channels": ("lstm", scheme({}, None), [f"{PER_ROW}the kernels"]),
}


@pytest.mark.parametrize("case", NOTED)
def test_other_schemes_become_the_one_there_is(tmp_path: Path, case: str) -> None:
    kind, recipe, notes = NOTED[case]
    layer = Layer(kind)
    done = native(layer, tmp_path, recipe=recipe)
    outcome = done.outcome("layer")
    for said, note in zip(outcome.notes, notes, strict=True):
        assert said.startswith(note)
    assert outcome.scheme == "int8 per channel, activations per row"
    assert np.array_equal(opened(done.path).run(["Y"], layer.feeds)[0], layer.by_core()["Y"])


def damaged(array: np.ndarray) -> np.ndarray:
    array[0, 0, 0, 0, 0] ^= 1
    return array


def scaled(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.where(np.arange(array.shape[1]) == 3, np.float32(value), array)


BROKEN: dict[str, tuple[Change, str]] = {
    "W": (puts(1, damaged), "W does not hold what was written"),
    "R": (puts(3, damaged), "R does not hold what was written"),
    "R-is-short": (puts(3, lambda a: a[:, :2]), r"R has shape \[1, 2, 5"),
    "W-scale": (puts(2, scaled(0)), r"W_scale\[3\] is 0"),
    "R-scale": (puts(4, scaled(np.nan)), r"R_scale\[3\] is nan"),
    "B": (puts(5, lambda a: a[:, :1]), r"B has shape \[1, 1, 96\]"),
    "hidden": (sets("hidden_size", 0), "hidden_size is 0, not in 1..32640"),
    "inputs": (sets("input_size", 32641), "input_size is 32641, not in 1.."),
    "format": (sets("weight_format", "int4"), "the format 'int4'"),
    "direction": (sets("direction", "up"), "direction 'up' is unknown"),
    "layout": (sets("layout", 2), "layout is 2"),
    "clip": (sets("clip", -1.0), "clip is -1.0"),
    "given": (sets("given", "P"), "given holds 'P'"),
    "given-less": (sets("given", ""), "names 0 inputs behind B"),
    "outputs": (sets("outputs", 1), "outputs is 1; the node has 2"),
    "reset": (sets("linear_before_reset", 2), "linear_before_reset is 2"),
    "activation": (sets("activation", "gelu"), "activation 'gelu' is unknown; .* tanh, relu"),
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Converted]:
    layers = {"GRU": Layer("gru", states=("initial_h",)), "RNN": Layer("relu")}
    folder = tmp_path_factory.mktemp("whole")
    return {op: native(layer, folder) for op, layer in layers.items()}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_node_is_an_error_of_the_session(
    converted: dict[str, Converted], case: str
) -> None:
    op, (change, message) = "RNN" if case == "activation" else "GRU", BROKEN[case]
    model = onnx.ModelProto()
    model.CopyFrom(converted[op].proto)
    change(model)
    with pytest.raises(REFUSALS, match=rf"node 'layer' \(ai.octavo.{op}\): .*{message}"):
        opened_proto(model)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    layer = Layer("lstm", states=("initial_h", "initial_c"), lengths=(5, 4, 3))
    proto = native(layer, tmp_path).proto
    for i in proto.graph.input:  # open shapes: ONNX Runtime itself would refuse others
        i.type.tensor_type.ClearField("shape")
    model = opened_proto(proto)
    lengths, wide = layer.feeds["sequence_lens"], np.zeros((5, 3, 8), np.float32)
    for name, array, message in (
        ("sequence_lens", np.array([5, 6, 0], np.int32), r"sequence_lens\[1\] is 6, not in 0..5"),
        ("sequence_lens", np.array([5, 4, -1], np.int32), r"sequence_lens\[2\] is -1, not in 0..5"),
        ("sequence_lens", lengths[:2], r"sequence_lens has shape \[2\]"),
        ("X", wide, r"X has shape \[5, 3, 8\]; .*\[T, B, 7\]"),
        ("initial_h", layer.feeds["initial_h"][:, :2], r"initial_h has shape .*\[1, 3, 20\]"),
    ):
        with pytest.raises(REFUSALS, match=rf"node 'layer' \(ai.octavo.LSTM\): {message}"):
            model.run(None, layer.feeds | {name: array})
        assert np.isfinite(model.run(None, layer.feeds)[0]).all()
