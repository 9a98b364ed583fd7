"""Where models are compared whose outputs show nothing, are discrete, or are drawn by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from octavo.errors import VerificationError
from octavo.onnx import quantize_dynamic, session
from octavo.onnx.check.model_pair import ModelPair
from octavo.onnx.check.outputs import OutputComparison
from octavo.onnx.check.runs import Runs, open_float
from octavo.onnx.read.load import load
from tests.graphs import F32, build, normal, refused

I64 = TensorProto.INT64
BAD = np.where(np.arange(64)[:, None] == 0, np.float32(1e3), normal(64, 16) * np.float32(1e-3))
"""Quantized per channel nothing is left of it but the first row, which is multiplied by 0."""


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=f"{op}_{outputs[0]}", **attributes)


def tail(
    nodes: list[onnx.NodeProto],
    output: tuple[Any, ...],
    weights: dict[str, Any] | None = None,
    *,
    bad: bool = False,
    bias: float = 0.0,
) -> onnx.ModelProto:
    """x [m, 64] -> mm -> h [m, 16] -> `nodes`; the layer is ruined by quantization where `bad`."""
    first = np.where(np.arange(64) == 0, np.float32(0), np.float32(1))
    stored = {
        "keep": first,
        "w": BAD if bad else normal(64, 16) / np.float32(8),
        "b": np.full(16, bias, np.float32),
        **(weights or {}),
    }
    start = [
        node("Mul", ["x", "keep"], ["x0"]),
        helper.make_node("MatMul", ["x0", "w"], ["h0"], name="mm"),
        node("Add", ["h0", "b"], ["h"]),
    ]
    return build([*start, *nodes], [("x", F32, ["m", 64])], [output], stored)


SHOWS_NOTHING = {
    "quiet sigmoid": ([node("Sigmoid", ["h"], ["y"])], ("y", F32, ["m", 16]), {}, -16.0),
    "loud sigmoid": ([node("Sigmoid", ["h"], ["y"])], ("y", F32, ["m", 16]), {}, 40.0),
    "softmax of large numbers": (
        [node("Mul", ["h", "k"], ["s"]), node("Softmax", ["s"], ["y"])],
        ("y", F32, ["m", 16]), {"k": np.float32(4e3)}, 0.0,
    ),
    "argmax": (
        [node("ArgMax", ["h"], ["y"], axis=1, keepdims=0)], ("y", I64, ["m"]), {}, 0.0,
    ),
    "clip": (
        [node("Mul", ["h", "k"], ["s"]), node("Clip", ["s", "zero", "one"], ["y"])],
        ("y", F32, ["m", 16]),
        {"k": np.float32(1e5), "zero": np.float32(0), "one": np.float32(1)}, 0.0,
    ),
    "masked": (
        [node("Mul", ["h", "zero"], ["y"])], ("y", F32, ["m", 16]), {"zero": np.float32(0)}, 0.0,
    ),
    "a cast label": (
        [node("ArgMax", ["h"], ["a"], axis=1), node("Cast", ["a"], ["y"], to=I64)],
        ("y", I64, ["m", 1]), {}, 0.0,
    ),
    "a sigmoid, turned": (
        [node("Sigmoid", ["h"], ["s"]), node("Transpose", ["s"], ["y"])],
        ("y", F32, [16, "m"]), {}, 40.0,
    ),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("name", SHOWS_NOTHING)
def test_what_shows_nothing_is_compared_before(name: str, target: str, tmp_path: Path) -> None:
    """Neither refused nor called passed; a layer that is ruined is found all the same."""
    nodes, output, weights, bias = SHOWS_NOTHING[name]
    out = tmp_path / "out.onnx"
    v = quantize_dynamic(tail(nodes, output, weights, bias=bias), out, target=target).verification
    if "sigmoid" in name and target == "native":  # the layer took the sigmoid in: nothing to see
        assert (v.status, v.error) == ("unchecked", None) and v.detail.startswith("output 'y' ")
        return
    assert v.status == "compared" and v.error is not None and 0 < v.error < 0.01
    assert "before " in v.detail and v.ran_on.startswith("x ")
    if bias:
        return  # the constant is nearly all of the layer's output
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'mm'"):
        quantize_dynamic(tail(nodes, output, weights, bad=True), out, target=target)


def test_labels_beside_probabilities_say_nothing_more(tmp_path: Path) -> None:
    nodes = [node("Softmax", ["h"], ["y"]), node("ArgMax", ["y"], ["label"], axis=1)]
    model = tail(nodes, ("y", F32, ["m", 16]))
    model.graph.output.append(helper.make_tensor_value_info("label", I64, ["m", 1]))
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert (v.status, v.detail) == ("passed", "")


def test_small_outputs_that_nothing_bounds_are_compared_themselves(tmp_path: Path) -> None:
    nodes = [node("Mul", ["h", "k"], ["y"])]
    model = tail(nodes, ("y", F32, ["m", 16]), {"k": np.float32(1e-9)})
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert (v.status, v.detail) == ("passed", "") and v.error and v.error < 0.01


def two_heads(nodes: list[onnx.NodeProto], output: tuple[Any, ...]) -> onnx.ModelProto:
    """x -> good -> g and x -> ruined -> r, which share nothing, then `nodes`."""
    stored = {
        "keep": np.where(np.arange(64) == 0, np.float32(0), np.float32(1)),
        "good": normal(64, 16) / np.float32(8), "ruined": BAD, "zero": np.float32(0),
    }  # fmt: skip
    start = [
        node("Mul", ["x", "keep"], ["x0"]),
        helper.make_node("MatMul", ["x0", "good"], ["g"], name="good_layer"),
        helper.make_node("MatMul", ["x0", "ruined"], ["r"], name="ruined_layer"),
    ]
    return build([*start, *nodes], [("x", F32, ["m", 64])], [output], stored)


def test_labels_of_layers_that_no_other_output_shows(tmp_path: Path) -> None:
    model = two_heads([node("ArgMax", ["r"], ["y"], axis=1)], ("y", I64, ["m", 1]))
    model.graph.output.append(helper.make_tensor_value_info("g", F32, ["m", 16]))
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'ruined_layer'"):
        quantize_dynamic(model, tmp_path / "out.onnx")


def test_all_ways_behind_an_output_are_looked_at(tmp_path: Path) -> None:
    nodes = [node("Greater", ["g", "r"], ["y"])]
    model = two_heads(nodes, ("y", TensorProto.BOOL, ["m", 16]))
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'ruined_layer'"):
        quantize_dynamic(model, tmp_path / "out.onnx")


@pytest.mark.parametrize("hidden", [-1e4, -1e9, -3.4e38, -np.inf])
def test_a_mask_is_not_what_errors_are_relative_to(hidden: float, tmp_path: Path) -> None:
    mask = np.zeros((1, 16), np.float32)
    mask[:, 8:] = hidden
    nodes = [node("Less", ["mask", "zero"], ["m"]), node("Where", ["m", "mask", "h"], ["y"])]
    weights = {"mask": mask, "zero": np.float32(0)}
    out = tmp_path / "out.onnx"
    v = quantize_dynamic(tail(nodes, ("y", F32, ["m", 16]), weights), out).verification
    assert v.status == "passed" and v.error is not None and 1e-6 < v.error < 0.01
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'mm'"):
        quantize_dynamic(tail(nodes, ("y", F32, ["m", 16]), weights, bad=True), out)


def test_a_layer_that_is_far_off_where_no_output_shows_it(tmp_path: Path) -> None:
    """The largest of its numbers is always the same one."""
    nodes = [
        node("Add", ["h", "first"], ["s"]),
        node("ArgMax", ["s"], ["which"], axis=1, keepdims=0),
        node("Gather", ["table", "which"], ["y"]),
    ]
    first = np.zeros(16, np.float32)
    first[3] = 1e4
    weights = {"first": first, "table": normal(16, 16)}
    v = quantize_dynamic(
        tail(nodes, ("y", F32, ["m", 16]), weights, bad=True), tmp_path / "out.onnx"
    ).verification
    assert (v.status, v.error) == ("unchecked", None)
    assert "no output shows it, but layer 'mm' is 0." in v.detail


# Decisions ---------------------------------------------------------------------------------------


def durations(*, bad_after: bool = False) -> onnx.ModelProto:
    """As speech is made: as many steps as a layer says, and another layer over them."""
    nodes = [
        node("ReduceSum", ["h"], ["s"], keepdims=0),
        node("Mul", ["s", "thousand"], ["long"]),
        node("Abs", ["long"], ["positive"]),
        node("Ceil", ["positive"], ["steps"]),
        node("Cast", ["steps"], ["n"], to=I64),
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Cast", ["r"], ["rf"], to=F32),
        node("Unsqueeze", ["rf", "one1"], ["column"]),
        node("Sin", ["column"], ["waves"]),
        node("Mul", ["waves", "keep"], ["wide"]),
        helper.make_node("MatMul", ["wide", "w2"], ["y"], name="after"),
    ]
    weights = {
        "thousand": np.float32(30), "zero": np.array(0), "one": np.array(1),
        "one1": np.array([1]), "w2": BAD if bad_after else normal(64, 16, seed=3),
    }  # fmt: skip
    return tail(nodes, ("y", F32, None), weights)


def test_lengths_that_follow_predictions_are_given_to_both(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    v = quantize_dynamic(durations(), out).verification
    assert v.status == "compared" and v.error is not None and 0 < v.error < 0.01
    assert "Ceil 'Ceil_steps'" in v.detail
    # What comes after the decision is compared too.
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'after'"):
        quantize_dynamic(durations(bad_after=True), out)


def test_choices_are_given_to_both(tmp_path: Path) -> None:
    """The largest of sixteen near ones: another is chosen by int8, and rows of a table follow."""
    nodes = [
        node("ArgMax", ["h"], ["which"], axis=1, keepdims=0),
        node("Gather", ["table", "which"], ["row"]),
        node("Add", ["row", "h"], ["y"]),
    ]
    table = normal(16, 16, seed=5) * np.float32(100)
    near = np.repeat(normal(64, 1), 16, axis=1) + normal(64, 16, seed=1) * np.float32(1e-4)
    model = tail(nodes, ("y", F32, ["m", 16]), {"table": table, "w": near})
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert v.status == "compared" and v.error is not None and v.error < 0.01
    assert "with the float model's ArgMax 'ArgMax_which' in both" in v.detail


def test_noise_is_the_same_for_both(tmp_path: Path) -> None:
    nodes = [
        node("RandomNormalLike", ["h"], ["noise"], dtype=F32),
        node("Add", ["h", "noise"], ["z0"]),
        node("Concat", ["z0", "z0", "z0", "z0"], ["z"], axis=1),
        node("Mul", ["z", "keep"], ["z1"]),
        helper.make_node("MatMul", ["z1", "w2"], ["y"], name="after"),
    ]
    out = tmp_path / "out.onnx"
    good = {"w2": normal(64, 16, seed=3)}
    v = quantize_dynamic(tail(nodes, ("y", F32, ["m", 16]), good), out).verification
    assert v.status == "compared" and v.error is not None and 0 < v.error < 0.01
    assert "with the float model's noise in both" in v.detail
    with refused(tmp_path, VerificationError, "too far", "Look at layer 'after'"):
        quantize_dynamic(tail(nodes, ("y", F32, ["m", 16]), {"w2": BAD}), out)


def test_noise_that_nothing_can_be_given_for(tmp_path: Path) -> None:
    """In a branch: no two runs of the float model agree, so nothing is said of the other."""
    out = [helper.make_tensor_value_info("o", F32, None)]
    drawn = helper.make_graph([node("RandomNormalLike", ["h"], ["o"], dtype=F32)], "then", [], out)
    still = helper.make_graph([node("Identity", ["h"], ["o"])], "else", [], out)
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "low"], ["c"]),
        node("If", ["c"], ["y"], then_branch=drawn, else_branch=still),
    ]
    source = load(tail(nodes, ("y", F32, None), {"low": np.float32(-1e9)}))
    report = quantize_dynamic(source.origin, tmp_path / "out.onnx", verify=False)
    runs = Runs(open_float(source), session(tmp_path / "out.onnx"), source)
    feed = {"x": normal(3, 64)}
    runs.again(feed)  # sessions draw the same numbers, each its own: now they are a run apart
    pair = ModelPair(source, tmp_path / "out.onnx", [o.layer.name for o in report.quantized])
    found = OutputComparison(runs.names, pair, runs.again).compare(runs.given([feed]), 0.1)
    assert not found.distances
    assert found.summary == "output 'y' differs between two runs of the float model itself"


def test_guards_decide_nothing_that_matters(tmp_path: Path) -> None:
    """`Where(IsNaN(a), 0, a)` and a step at 0, which int8 keeps: the output itself is compared."""
    nodes = [
        node("IsNaN", ["h"], ["bad"]),
        node("Where", ["bad", "zero", "h"], ["clean"]),
        node("Greater", ["clean", "zero"], ["up"]),
        node("Where", ["up", "clean", "zero"], ["y"]),
    ]
    model = tail(nodes, ("y", F32, ["m", 16]), {"zero": np.float32(0)})
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert (v.status, v.detail) == ("passed", "")


# Nothing to compare ------------------------------------------------------------------------------


def test_layers_without_a_part_in_the_output(tmp_path: Path) -> None:
    """A softmax over one key is 1 whatever the layers say: they are compared themselves."""
    nodes = [
        node("ReduceSum", ["h", "axis"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("Mul", ["x", "p"], ["y"]),
    ]
    model = tail(nodes, ("y", F32, ["m", 64]), {"axis": np.array([1])})
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert v.status == "compared" and v.detail == "at layer 'mm'"
    assert v.error is not None and 0 < v.error < 0.01


def test_lossless_layers_pass_at_once(tmp_path: Path) -> None:
    """Weights and activations that int8 holds exactly."""
    w = np.random.default_rng(0).integers(-1, 2, (64, 16)).astype(np.float32) * 127
    nodes = [
        node("Sign", ["x"], ["s"]),
        node("Mul", ["s", "full"], ["x1"]),
        helper.make_node("MatMul", ["x1", "w"], ["y"], name="mm"),
    ]
    inputs: list[Any] = [("x", F32, ["m", 64])]
    model = build(nodes, inputs, [("y", F32, ["m", 16])], {"w": w, "full": np.float32(127)})
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert (v.status, v.error, v.detail) == ("passed", 0.0, "")


def test_an_output_that_nothing_is_known_of(tmp_path: Path) -> None:
    """x is all zeros: the layer's output is its bias, in both models."""
    nodes = [
        node("Mul", ["x", "zero"], ["none"]),
        helper.make_node("MatMul", ["none", "w"], ["y"], name="mm"),
    ]
    inputs: list[Any] = [("x", F32, ["m", 64])]
    weights = {"zero": np.float32(0), "w": normal(64, 16)}
    v = quantize_dynamic(
        build(nodes, inputs, [("y", F32, ["m", 16])], weights), tmp_path / "out.onnx"
    ).verification
    assert (v.status, v.error) == ("unchecked", None)
    assert v.detail == "output 'y' holds one and the same number everywhere"
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("inputs", [None, "given"])
def test_models_that_cannot_be_looked_into(
    inputs: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.errors import ModelError

    def fails(*_: Any) -> Any:
        raise ModelError("its layers cannot be looked at")

    monkeypatch.setattr(ModelPair, "floating", fails)
    nodes = [node("ArgMax", ["h"], ["y"], axis=1, keepdims=0)]
    model = tail(nodes, ("y", I64, ["m"]))
    feed = None if inputs is None else {"x": normal(2, 64)}
    v = quantize_dynamic(model, tmp_path / "out.onnx", check_inputs=feed).verification
    assert v.status == "unchecked" and "holds no floating-point numbers" in v.detail
    assert "cannot be looked at" in v.detail
