"""Sinks of an attention, as gpt-oss spells them, are an input of the one node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.graphs import Array, rng
from tests.native_target.nodes import REFUSALS
from tests.native_target.nodes import run as run_op
from tests.onnx.rules.attention_graphs import (
    HEADS_APART,
    INPUTS,
    LOWEST,
    TOGETHER,
    B,
    H,
    S,
    T,
    assert_same,
    converted,
    one_node,
    queries_keys_values,
    spelled,
)

SINKS = np.array([3.0, -2.0, 0.5, 40.0], np.float32).reshape(1, H, 1, 1)
CONSTANTS = {
    "sinks": SINKS,
    "one_sink": SINKS[:, :1],
    "wide": np.array([B, H, S, 1]),
    "minus": np.array([-1]),
    "third": np.array([3]),
}
BEFORE = HEADS_APART + " a = MatMul (q4, kt) m = Mul (a, scale) scores = Add (m, hides) "
SUNK = " s = Expand (sinks, wide) both = Concat <axis = -1> (scores, s) "
LARGEST = " top = ReduceMax <axes = [-1]> (both) less = Sub (both, top) "
DROPPED = " c = Slice (p, first, minus, third, one) o4 = MatMul (c, v4) "
FORMS = {
    "plain": f"{SUNK} p = Softmax <axis = -1> (both) {DROPPED}",
    "less the largest": f"{SUNK} {LARGEST} p = Softmax <axis = -1> (less) {DROPPED}",
    "behind casts": f"""{SUNK} {LARGEST} n = Softmax <axis = 3> (less) p = Cast <to = 1> (n)
        {DROPPED}""",
}
OTHERS = {
    "the first weight dropped": f"""{SUNK} p = Softmax <axis = -1> (both)
        c = Slice (p, one, end, third) o4 = MatMul (c, v4)""",
    "one sink for all heads": f"""s = Expand (one_sink, wide) both = Concat <axis = -1> (scores, s)
        p = Softmax <axis = -1> (both) {DROPPED}""",
    "the smallest taken away": f"""{SUNK} top = ReduceMin <axes = [-1]> (both)
        less = Sub (both, top) p = Softmax <axis = -1> (less) {DROPPED}""",
    "the sink first": f"""s = Expand (sinks, wide) both = Concat <axis = -1> (s, scores)
        p = Softmax <axis = -1> (both) {DROPPED}""",
}


def feeds() -> dict[str, Array]:
    """The last item has no keys: its sinks take all, and it gives 0."""
    keys = np.ones((B, 1, 1, T), bool)
    keys[1, ..., 5:] = False
    keys[2] = False
    return queries_keys_values() | {"hides": np.where(keys, 0, LOWEST).astype(np.float32)}


@pytest.mark.parametrize("form", FORMS)
def test_they_are_an_input(tmp_path: Path, form: str) -> None:
    inputs = INPUTS | {"hides": "float[B, 1, 1, T]"}
    model = spelled(BEFORE + FORMS[form] + TOGETHER, inputs, constants=CONSTANTS)
    done = one_node(model, feeds(), tmp_path)
    assert done.ours == {"Attention": 1, "Linear": 1}
    assert done.node["given"] == b"bias sinks"
    assert not done.outputs[0][2].any()


@pytest.mark.parametrize("form", OTHERS)
def test_what_only_looks_alike_stays(tmp_path: Path, form: str) -> None:
    inputs = INPUTS | {"hides": "float[B, 1, 1, T]"}
    model = spelled(BEFORE + OTHERS[form] + TOGETHER, inputs, constants=CONSTANTS)
    done = converted(model, feeds(), tmp_path)
    assert done.ours == {"Linear": 1}
    assert any("a softmax between two products" in note for note in done.report.notes)
    assert_same(done.outputs[0], done.exact[0])


def test_as_many_as_heads() -> None:
    x = {n: rng(i).standard_normal((1, 5, 16)).astype(np.float32) for i, n in enumerate("QKV")}
    with pytest.raises(REFUSALS, match=r"sinks has shape \[3\]; it has to be \[2\]"):
        run_op("Attention", x | {"sinks": np.zeros(3, np.float32)}, {}, heads=2, given="sinks")
