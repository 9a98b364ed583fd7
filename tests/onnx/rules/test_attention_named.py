"""Attention that a file names: opset 23's operator, and those of ONNX Runtime's optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphs import Array, rng
from tests.onnx.rules.attention_graphs import (
    INPUTS,
    WIDTH,
    B,
    D,
    H,
    S,
    T,
    assert_same,
    converted,
    one_node,
    queries_keys_values,
    spelled,
)

P = 4


def random(*shape: int, seed: int = 5) -> Array:
    return np.asarray(rng(seed).standard_normal(shape), np.float32)


PAST = {f"past_{n}": random(B, H, P, D, seed=i) for i, n in enumerate("kv")}
SHOWN = random(B, 1, S, T) < 1
SHOWN[..., 0] = True
PADDED = np.zeros((B, 1, S, T), np.float32)
PADDED[1, ..., :2] = PADDED[2, ..., :4] = -np.inf
LOWEST = np.finfo(np.float32).min
ITEMS = (np.arange(B) < 2)[:, None, None, None]
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Array]]] = {
    "plain": ("q, k, v", {}, {}),
    "scale": ("q, k, v", {"scale": 0.3}, {}),
    "softcap": ("q, k, v", {"softcap": 1.5}, {}),
    "causal": ("q, k, v", {"is_causal": 1}, {}),
    "mask": ("q, k, v, shown", {}, {"shown": SHOWN}),
    "bias": ("q, k, v, added", {}, {"added": random(B, H, S, T)}),
    "hides-all": ("q, k, v, shown", {}, {"shown": SHOWN & ITEMS}),
    "bias-hides-all": (
        "q, k, v, added", {}, {"added": np.where(ITEMS, SHOWN, -np.inf).astype(np.float32)},
    ),
    "causal-mask": ("q, k, v, shown", {"is_causal": 1}, {"shown": SHOWN}),
    "causal-padded": ("q, k, v, added", {"is_causal": 1}, {"added": PADDED}),
    "causal-padded-lowest": (
        "q, k, v, added", {"is_causal": 1}, {"added": np.maximum(PADDED, LOWEST)},
    ),
    "causal-padded-capped": (
        "q, k, v, added", {"is_causal": 1, "softcap": 1.5}, {"added": PADDED},
    ),
}  # fmt: skip


def kind_of(array: Array) -> str:
    kind = {"bool": "bool", "float32": "float", "int32": "int32"}[array.dtype.name]
    return f"{kind}[{', '.join(map(str, array.shape))}]"


def written(attributes: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in attributes.items())


ALIKE = dict.fromkeys("qkv", f"float[B, S, {WIDTH}]")
"""Where keys are known to be as many as queries."""


def check(
    body: str,
    feeds: dict[str, Array],
    folder: Path,
    *,
    inputs: dict[str, str] | None = None,
    outputs: tuple[str, ...] = (),
    opset: int = 17,
) -> None:
    """That `body` becomes one node, in both targets, and gives the same."""
    known = INPUTS | (inputs or {})
    declared = {name: known.get(name) or kind_of(array) for name, array in feeds.items()}
    model = spelled(body + " y = MatMul (o, w)", declared, ("o", "y", *outputs), opset=opset)
    done = one_node(model, feeds, folder)
    assert done.ours == {"Attention": 1, "Linear": 1}
    for found, exact in zip(done.outputs[2:], done.exact[2:], strict=True):
        assert_same(found, exact)


@pytest.mark.parametrize("case", CASES)
def test_the_standard_operator_over_rows(tmp_path: Path, case: str) -> None:
    names, attributes, more = CASES[case]
    opset = 23 + list(CASES).index(case) % 2
    stated = written(attributes | {"q_num_heads": H, "kv_num_heads": H})
    body = f"o = Attention <{stated}> ({names})"
    check(body, queries_keys_values() | more, tmp_path, opset=opset)


def test_the_standard_operator_over_heads(tmp_path: Path) -> None:
    """Transposes before and behind it go."""
    body = """
        q5 = Reshape (q, apart) k5 = Reshape (k, apart) v5 = Reshape (v, apart)
        q4 = Transpose <perm = [0, 2, 1, 3]> (q5) k4 = Transpose <perm = [0, 2, 1, 3]> (k5)
        v4 = Transpose <perm = [0, 2, 1, 3]> (v5) o4 = Attention <scale = 0.3> (q4, k4, v4)
        o5 = Transpose <perm = [0, 2, 1, 3]> (o4) o = Reshape (o5, joined)"""
    check(body, queries_keys_values(), tmp_path, opset=23)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("added", [{}, {"added": PADDED}], ids=["plain", "padded"])
def test_groups_of_the_standard_operator(
    tmp_path: Path, causal: int, added: dict[str, Array]
) -> None:
    feeds = queries_keys_values() | added
    feeds |= {name: feeds[name][..., : WIDTH // 2].copy() for name in "kv"}
    inputs = dict.fromkeys("kv", f"float[B, T, {WIDTH // 2}]")
    stated = written({"q_num_heads": H, "kv_num_heads": H // 2, "is_causal": causal})
    body = f"o = Attention <{stated}> ({', '.join(feeds)})"
    check(body, feeds, tmp_path, inputs=inputs, opset=23)


@pytest.mark.parametrize("causal", [0, 1])
def test_a_past_of_the_standard_operator(tmp_path: Path, causal: int) -> None:
    """Keys and values are as many as queries, as where a decoder goes on."""
    stated = written({"q_num_heads": H, "kv_num_heads": H, "is_causal": causal})
    body = f"o, now_k, now_v = Attention <{stated}> (q, k, v, , past_k, past_v)"
    feeds = queries_keys_values(keys=S) | PAST
    check(body, feeds, tmp_path, inputs=ALIKE, outputs=("now_k", "now_v"), opset=23)


def test_a_first_step_hands_keys_on(tmp_path: Path) -> None:
    stated = written({"q_num_heads": H, "kv_num_heads": H, "is_causal": 1})
    body = f"o, now_k, now_v = Attention <{stated}> (q, k, v)"
    check(body, queries_keys_values(keys=S), tmp_path, outputs=("now_k", "now_v"), opset=23)


KEYS = np.ones((B, T), np.int32)
KEYS[1, 5:] = 0
MULTI_HEAD: dict[str, tuple[str, dict[str, Any], dict[str, Array]]] = {
    "plain": ("q, k, v", {}, {}),
    "scale": ("q, k, v", {"scale": 0.3}, {}),
    "biases": ("q, k, v, biases", {}, {}),
    "keys": ("q, k, v, , keys", {}, {"keys": KEYS}),
    "keys-filled": ("q, k, v, , keys", {"mask_filter_value": -1.5}, {"keys": KEYS}),
    "added": ("q, k, v, , , added", {}, {"added": random(B, H, S, T)}),
    "keys-and-added": (
        "q, k, v, , keys, added", {}, {"keys": KEYS, "added": random(1, H, S, T)},
    ),
    "causal-padded": ("q, k, v, , , added", {"unidirectional": 1}, {"added": PADDED[..., :S]}),
    "causal-padded-keys": (
        "q, k, v, , keys, added",
        {"unidirectional": 1},
        {"keys": KEYS[:, :S], "added": PADDED[..., :S]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MULTI_HEAD)
def test_multi_head_attention(tmp_path: Path, case: str) -> None:
    names, attributes, more = MULTI_HEAD[case]
    stated = written(attributes | {"num_heads": H})
    causal = "unidirectional" in attributes
    feeds = queries_keys_values(keys=S if causal else T) | more
    known = ALIKE if causal else INPUTS
    declared = {name: known.get(name) or kind_of(array) for name, array in feeds.items()}
    body = f"o = com.microsoft.MultiHeadAttention <{stated}> ({names}) y = MatMul (o, w)"
    constants = {"biases": random(3 * WIDTH)}
    model = spelled(body, declared, constants=constants)
    assert one_node(model, feeds, tmp_path, back=causal).ours == {"Attention": 1, "Linear": 1}


def test_multi_head_attention_with_a_past(tmp_path: Path) -> None:
    body = f"""o, now_k, now_v = com.microsoft.MultiHeadAttention
        <num_heads = {H}, unidirectional = 1> (q, k, v, , , , past_k, past_v)"""
    feeds = queries_keys_values(keys=S) | PAST
    check(body, feeds, tmp_path, inputs=ALIKE, outputs=("now_k", "now_v"))


def test_biases_go_to_the_layers_before(tmp_path: Path) -> None:
    """As ONNX Runtime's optimizer writes a layer's bias into the attention."""
    body = f"""
        q = MatMul (x, w_of_q) k = MatMul (x, w_of_k) v = MatMul (x, w_of_v)
        o = com.microsoft.MultiHeadAttention <num_heads = {H}> (q, k, v, biases)
        y = MatMul (o, w)"""
    constants = {f"w_of_{n}": random(WIDTH, WIDTH, seed=i) / 6 for i, n in enumerate("qkv")}
    constants |= {"biases": random(3 * WIDTH)}
    model = spelled(body, {"x": f"float[B, S, {WIDTH}]"}, constants=constants)
    done = converted(model, {"x": queries_keys_values()["q"]}, tmp_path)
    assert done.ours == {"GroupedLinear": 1, "Attention": 1, "Linear": 1}
    difference = np.linalg.norm(done.outputs[0] - done.exact[0])
    assert difference < 0.03 * np.linalg.norm(done.exact[0])


@pytest.mark.parametrize("known", [True, False])
def test_biases_of_values_of_another_width(tmp_path: Path, known: bool) -> None:
    """They are parted by the widths of what they are added to, or the node is left."""
    body = f"""
        o = com.microsoft.MultiHeadAttention <num_heads = {H}> (q, k, v, biases)
        y = MatMul (o, narrow)"""
    feeds = queries_keys_values() | {"v": random(B, T, 2 * H)}
    inputs = INPUTS | {"v": f"float[B, T, {2 * H if known else 'W'}]"}
    constants = {"biases": random(2 * WIDTH + 2 * H), "narrow": random(2 * H, 64)}
    done = converted(spelled(body, inputs, constants=constants), feeds, tmp_path)
    assert ("Attention" in done.ours) == known
    assert_same(done.outputs[0], done.exact[0])


LEFT: dict[str, tuple[str, dict[str, Array], str, int]] = {
    "lengths": (
        f"o = com.microsoft.MultiHeadAttention <num_heads = {H}> (q, k, v, , keys)",
        {"keys": np.array([S, 5, 2], np.int32)},
        "its mask is not [batch, keys]",
        17,
    ),
    "filled-as-causality-fills": (
        f"""o = com.microsoft.MultiHeadAttention
            <num_heads = {H}, unidirectional = 1, mask_filter_value = -3.4e38>
            (q, k, v, , keys)""",
        {"keys": np.tri(S, dtype=np.int32)[:B, ::-1].copy()},
        "it hides padding as it does keys that come too late",
        17,
    ),
    # ONNX Runtime hides no key from the last query.
    "causal-of-other-lengths": (
        f"o = com.microsoft.MultiHeadAttention <num_heads = {H}, unidirectional = 1> (q, k, v)",
        queries_keys_values(keys=T),
        "its queries and new keys are not known to be as many",
        17,
    ),
    "causal-of-other-lengths-with-a-past": (
        f"""o, now_k, now_v = com.microsoft.MultiHeadAttention
            <num_heads = {H}, unidirectional = 1> (q, k, v, , , , past_k, past_v)""",
        queries_keys_values(keys=T) | PAST,
        "its queries and new keys are not known to be as many",
        17,
    ),
    "standard-causal-of-other-lengths-with-a-past": (
        f"""o, now_k, now_v = Attention <q_num_heads = {H}, kv_num_heads = {H}, is_causal = 1>
            (q, k, v, , past_k, past_v)""",
        queries_keys_values(keys=T) | PAST,
        "its queries and new keys are not known to be as many",
        23,
    ),
    "scores": (
        f"o, a, b, scores = Attention <q_num_heads = {H}, kv_num_heads = {H}> (q, k, v)",
        {},
        "its scores are an output",
        23,
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_is_in_the_report(tmp_path: Path, case: str) -> None:
    body, more, reason, opset = LEFT[case]
    feeds = queries_keys_values(keys=S) | more
    known = ALIKE if feeds["k"].shape == feeds["q"].shape else INPUTS
    declared = {name: known.get(name) or kind_of(array) for name, array in feeds.items()}
    outputs = ("o", "y", "scores") if "scores" in body else ("o", "y")
    model = spelled(body + " y = MatMul (o, w)", declared, outputs, opset=opset)
    model.graph.node[0].name = "named_one"
    done = converted(model, feeds, tmp_path)
    assert "Attention" not in done.ours
    assert_same(done.outputs[0], done.exact[0])
    (note,) = [note for note in done.report.notes if "left to ONNX Runtime" in note]
    assert reason in note and "named_one" in note
