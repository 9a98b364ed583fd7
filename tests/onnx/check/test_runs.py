"""What a check may take: memory known before a run, and time."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from octavo.onnx import quantize_dynamic
from octavo.onnx.check import model_pair, runs
from octavo.onnx.check.memory import Memory
from octavo.onnx.check.runs import Clock, run_within
from octavo.onnx.custom_ops import open_session
from octavo.onnx.read.load import load
from tests.graphs import F32, build, mlp, normal, save

I64 = TensorProto.INT64
HEADS, WIDE = 8, 64


def attention(symbols: tuple[str, str], *, stated: bool = True) -> onnx.ModelProto:
    """Scores of eight heads: 32 bytes for each pair of tokens of an item."""
    nodes = [
        helper.make_node("Reshape", ["x", "split"], ["s"]),
        helper.make_node("Transpose", ["s"], ["q"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["s"], ["k"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["q", "k"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["a"]),
        helper.make_node("MatMul", ["a", "q"], ["o"], name="values"),
        helper.make_node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "join"], ["j"]),
        helper.make_node("MatMul", ["j", "w"], ["y"], name="out"),
    ]
    weights = {
        "split": np.array([0, 0, HEADS, WIDE // HEADS]), "join": np.array([0, 0, WIDE]),
        "w": normal(WIDE, WIDE),
    }  # fmt: skip
    model = build(nodes, [("x", F32, [*symbols, WIDE])], [("y", F32, [*symbols, WIDE])], weights)
    if stated:
        dims = [symbols[0], HEADS, symbols[1], symbols[1]]
        model.graph.value_info.append(helper.make_tensor_value_info("scores", F32, dims))
    return model


def feed(batch: int, tokens: int) -> dict[str, Any]:
    return {"x": np.zeros((batch, tokens, WIDE), np.float32)}


@pytest.mark.parametrize("symbols", [("batch", "tokens"), ("s0", "s1")])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 16), (2, 128), (8, 512), (512, 512)])
def test_the_estimate_is_that_of_the_scores(
    symbols: tuple[str, str], batch: int, tokens: int
) -> None:
    scores = 4 * batch * HEADS * tokens * tokens
    rows = 4 * batch * tokens * WIDE
    found = Memory(load(attention(symbols)).model).of_run(feed(batch, tokens))
    assert 2 * scores <= found <= 2 * scores + 6 * rows  # scores and their softmax


def test_sizes_that_inference_does_not_tell_are_those_that_the_model_states() -> None:
    """Behind an operator that nobody knows, the model's own names of sizes count."""
    model = attention(("n", "t"))
    model.graph.node[0].domain = "own"
    model.opset_import.append(helper.make_opsetid("own", 1))
    known = Memory(load(model).model).of_run(feed(2, 128))
    assert known >= 4 * 2 * HEADS * 128 * 128


def test_large_weights_are_not_activations() -> None:
    model = mlp(2, 512)
    found = Memory(load(model).model).of_run({"x": np.zeros((1, 512), np.float32)})
    assert found <= 4 * 512 * 4


def test_what_needs_too_much_is_not_run(tmp_path: Path, monkeypatch: Any) -> None:
    model = attention(("s0", "s1"))
    huge = {"x": normal(64, 2048, WIDE)}
    monkeypatch.setattr(runs, "made_up", lambda *_, **__: iter([huge, feed(1, 4)]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    v = quantize_dynamic(model, tmp_path / "out.onnx", ["MatMul"]).verification
    assert v.runs == 1 and v.ran_on.startswith("x ") and "2048" not in v.ran_on
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000
    monkeypatch.setattr(runs, "made_up", lambda *_, **__: iter([huge]))
    v = quantize_dynamic(model, tmp_path / "out.onnx", ["MatMul"]).verification
    assert v.status == "unchecked" and "a run needs about" in v.detail and " GB" in v.detail


def forever() -> onnx.ModelProto:
    """A loop that turns as often as its input says."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"], name="step"),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", I64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", F32, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", F32, None),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["times", "", "x"], ["z"], body=body),
        helper.make_node("MatMul", ["z", "w"], ["y"], name="last"),
    ]
    inputs: list[Any] = [("times", I64, []), ("x", F32, ["m", 64])]
    return build(nodes, inputs, [("y", F32, None)], {"w": normal(64, 64) / np.float32(64)})


def test_a_run_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: Any) -> None:
    path = save(forever(), tmp_path / "m.onnx")
    given = {"times": np.array(10**12), "x": normal(2, 64)}
    started = time.perf_counter()
    with pytest.raises(TimeoutError, match="not done in"):
        run_within(open_session(path), None, given, 0.5)
    assert time.perf_counter() - started < 10
    monkeypatch.setattr(runs, "made_up", lambda *_, **__: iter([given]))
    monkeypatch.setattr(runs, "LONGEST_RUN", 0.5)
    v = quantize_dynamic(path, tmp_path / "out.onnx").verification
    assert v.status == "unchecked" and "it was not done in" in v.detail


def test_a_slow_model_lengthens_the_time(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(runs, "perf_counter", lambda: now[0])
    clock = Clock()
    assert clock.left == runs.CHECK_SECONDS
    clock.ran(0.1)
    assert clock.left == runs.CHECK_SECONDS
    clock.ran(2.0)
    now[0] = 15.0
    assert clock.left == 2.0 * runs.FLOAT_RUNS - 15


def test_what_bodies_hold_counts() -> None:
    """In a branch: scores that are summed before they leave it."""
    inner = [
        helper.make_node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "k"], ["scores"], name="scores"),
        helper.make_node("ReduceSum", ["scores", "last"], ["o"], keepdims=1),
    ]
    out = [helper.make_tensor_value_info("o", F32, None)]
    then = helper.make_graph(inner, "then", [], out)
    other = [helper.make_node("Identity", ["x"], ["o"])]
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["c"]),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=then,
            else_branch=helper.make_graph(other, "else", [], out),
        ),
    ]  # fmt: skip
    weights = {"last": np.array([2]), "zero": np.float32(0)}
    model = build(nodes, [("x", F32, ["n", "t", WIDE])], [("y", F32, None)], weights)
    assert Memory(load(model).model).of_run(feed(1, 2048)) >= 4 * 2048 * 2048


def test_looking_is_bounded_too(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(model_pair, "MOST_OPENED_BYTES", 10)
    model = attention(("n", "t"))
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["label"], axis=2))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("label", I64, None))
    v = quantize_dynamic(model, tmp_path / "out.onnx", ["MatMul"]).verification
    assert v.status == "unchecked" and "looking into both models needs about" in v.detail
