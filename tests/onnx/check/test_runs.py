"""What a check may take: memory known before a run, and time."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from octavo.onnx.check import model_pair, runs
from octavo.onnx.check.memory import Memory
from octavo.onnx.check.runs import Clock, run_within
from octavo.onnx.custom_ops import open_session
from octavo.onnx.read.load import load
from tests.graphs import FLOAT, INT64, Array, checked, mlp, normal, save, text

HEADS, WIDE = 8, 64


def attention(symbols: tuple[str, str], *, stated: bool = True) -> onnx.ModelProto:
    """Scores of eight heads: 32 bytes for each pair of tokens of an item."""
    body = """s = Reshape (x, split)
        q = Transpose <perm = [0, 2, 1, 3]> (s)
        k = Transpose <perm = [0, 2, 3, 1]> (s)
        [scores] scores = MatMul (q, k)
        a = Softmax (scores)
        [values] o = MatMul (a, q)
        t = Transpose <perm = [0, 2, 1, 3]> (o)
        j = Reshape (t, join)
        [out] y = MatMul (j, w)"""
    weights = {"split": np.array([0, 0, HEADS, WIDE // HEADS]), "join": np.array([0, 0, WIDE])}
    shape = f"float[{', '.join(symbols)}, {WIDE}]"
    model = text(body, f"{shape} x", f"{shape} y", weights | {"w": normal(WIDE, WIDE)})
    if stated:
        dims = [symbols[0], HEADS, symbols[1], symbols[1]]
        model.graph.value_info.append(helper.make_tensor_value_info("scores", FLOAT, dims))
    return model


def feed(batch: int, tokens: int) -> dict[str, Array]:
    return {"x": np.zeros((batch, tokens, WIDE), np.float32)}


@pytest.mark.parametrize("symbols", [("batch", "tokens"), ("s0", "s1")])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 16), (2, 128), (512, 512)])
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
    found = Memory(load(mlp(2, 512)).model).of_run({"x": np.zeros((1, 512), np.float32)})
    assert found <= 4 * 512 * 4


def test_what_bodies_hold_counts() -> None:
    """In a branch: scores that are summed before they leave it."""
    body = """most = ReduceMax <keepdims = 0> (x)
        c = Greater (most, zero)
        y = If (c) <
            then_branch = t () => (float[] o) {
                k = Transpose <perm = [0, 2, 1]> (x)
                [scores] scores = MatMul (x, k)
                o = ReduceSum <keepdims = 1> (scores, last)
            },
            else_branch = e () => (float[] o) { o = Identity (x) }>"""
    weights = {"last": np.array([2]), "zero": np.float32(0)}
    model = text(body, f"float[n, t, {WIDE}] x", weights=weights)
    assert Memory(load(model).model).of_run(feed(1, 2048)) >= 4 * 2048 * 2048


def test_what_needs_too_much_is_not_run(tmp_path: Path, monkeypatch: Any) -> None:
    model, only = attention(("s0", "s1")), {"op_types_to_quantize": ["MatMul"]}
    huge = {"x": normal(64, 2048, WIDE)}
    monkeypatch.setattr(runs, "made_up", lambda *_, **__: iter([huge, feed(1, 4)]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    v = checked(model, tmp_path, **only)
    assert v.runs == 1 and v.ran_on.startswith("x ") and "2048" not in v.ran_on
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000
    monkeypatch.setattr(runs, "made_up", lambda *_, **__: iter([huge]))
    v = checked(model, tmp_path, **only)
    assert v.status == "unchecked" and "a run needs about" in v.detail and " GB" in v.detail


def test_looking_is_bounded_too(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(model_pair, "MOST_OPENED_BYTES", 10)
    model = attention(("n", "t"))
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["label"], axis=2))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("label", INT64, None))
    v = checked(model, tmp_path, op_types_to_quantize=["MatMul"])
    assert v.status == "unchecked" and "looking into both models needs about" in v.detail


def turning() -> onnx.ModelProto:
    """A loop that turns as often as its input says."""
    body = """z = Loop (times, , x) <
            body = turn (int64 i, bool go, float[] state) => (bool on, float[] next) {
                [step] next = MatMul (state, w)
                on = Identity (go)
            }>
        [last] y = MatMul (z, w)"""
    weights = {"w": normal(64, 64) / np.float32(64)}
    return text(body, "int64 times, float[m, 64] x", weights=weights)


def test_loops_are_not_looked_into(tmp_path: Path) -> None:
    v = checked(turning(), tmp_path)
    assert (v.status, v.detail) == ("passed", "")
    given = {"times": 20_000, "x": np.zeros((3, 64), np.float32)}
    started = time.perf_counter()
    checked(turning(), tmp_path, check_inputs=given)
    assert time.perf_counter() - started < 20  # a profile of all turns has a gigabyte


def test_a_run_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: Any) -> None:
    path = save(turning(), tmp_path / "m.onnx")
    given = {"times": np.array(10**12), "x": normal(2, 64)}
    started = time.perf_counter()
    with pytest.raises(TimeoutError, match="not done in"):
        run_within(open_session(path), None, given, 0.1)
    assert time.perf_counter() - started < 10
    monkeypatch.setattr(runs, "made_up", lambda *_, **__: iter([given]))
    monkeypatch.setattr(runs, "LONGEST_RUN", 0.1)
    v = checked(path, tmp_path)
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
