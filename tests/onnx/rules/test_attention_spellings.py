"""Attention in every spelling is one node, and gives what the float model gives."""

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
    PRODUCTS,
    TOGETHER,
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

MASKS = {
    "keys": "bool[B, 1, 1, T]",
    "pairs": "bool[1, 1, S, T]",
    "bias": "float[1, 4, S, T]",
    "hides": "float[B, 1, 1, T]",
}


def masks(hidden: str) -> dict[str, Array]:
    """`keys` hides some keys of the second item, and `hidden` of the third: "some" or "all"."""
    keys = np.ones((B, 1, 1, T), bool)
    keys[1, ..., 5:] = False
    keys[2, ..., 3 if hidden == "some" else 0 :] = False
    pairs = np.tril(np.ones((1, 1, S, T), bool), 2)
    bias = rng(11).standard_normal((1, H, S, T)).astype(np.float32)
    return {"keys": keys, "pairs": pairs, "bias": bias, "hides": added(keys)}


def added(keys: Array) -> Array:
    return np.where(keys, 0, LOWEST).astype(np.float32)


QK = "a = MatMul (q4, kt)"
SPELLINGS = {
    "factor": f"{QK} scores = Mul (a, scale)",
    "factor-first": f"{QK} scores = Mul (scale, a)",
    "divisor": f"{QK} scores = Div (a, divisor)",
    "nothing": "scores = MatMul (q4, kt)",
    "scale-on-both": "qs = Mul (q4, root) ks = Mul (kt, root) scores = MatMul (qs, ks)",
    "scale-on-keys-before-they-turn": """
        ks = Mul (k4, scale) kst = Transpose <perm = [0, 1, 3, 2]> (ks)
        scores = MatMul (q4, kst)""",
    "scale-of-the-size": """
        sizes = Shape (q4) depth = Slice (sizes, last, end) df = Cast <to = 1> (depth)
        rt = Sqrt (df) a = MatMul (q4, kt) scores = Div (a, rt)""",
    "root-of-a-reciprocal": """
        sizes = Shape (q4) depth = Slice (sizes, last, end) df = Cast <to = 1> (depth)
        rt = Sqrt (df) inverse = Reciprocal (rt) half = Sqrt (inverse)
        qs = Mul (q4, half) ks = Mul (kt, half) scores = MatMul (qs, ks)""",
    "bias": f"{QK} scores = Add (a, bias)",
    "bias-first": f"{QK} scores = Add (bias, a)",
    "two-biases": f"{QK} b = Add (a, bias) scores = Add (b, hides)",
    "bias-scaled-afterwards": f"{QK} b = Add (a, bias) scores = Mul (b, scale)",
    "bias-taken-away": f"{QK} scores = Sub (a, bias)",
    "filled": f"{QK} scores = Where (keys, a, lowest)",
    "filled-where-not": f"{QK} n = Not (keys) scores = Where (n, lowest, a)",
    "filled-far": f"{QK} scores = Where (keys, a, far)",
    "filled-near": f"{QK} scores = Where (keys, a, near)",
    "filled-then-biased": f"{QK} b = Where (keys, a, lowest) scores = Add (b, bias)",
    "filled-then-scaled": f"{QK} b = Where (keys, a, far) scores = Mul (b, scale)",
    "filled-twice": f"{QK} b = Where (pairs, a, lowest) scores = Where (keys, b, lowest)",
    "filled-near-then-hidden": f"{QK} b = Where (pairs, a, near) scores = Add (b, hides)",
    "hidden-then-filled-near": f"{QK} b = Add (a, hides) scores = Where (pairs, b, near)",
    "filled-near-added-near": f"""{QK} m = Where (keys, nought, near) b = Where (pairs, a, near)
        scores = Add (b, m)""",
    "endless-then-filled-far": f"""{QK} m = Where (keys, nought, endless) b = Add (a, m)
        scores = Where (pairs, b, far)""",
    "filled-near-added-lowest": f"""{QK} m = Where (keys, bias, lowest)
        b = Where (pairs, a, near) scores = Add (b, m)""",
    "added-twice": f"""{QK} m = Where (keys, nought, lowest) n = Where (pairs, nought, lowest)
        b = Add (a, m) scores = Add (b, n)""",
    "added": f"{QK} m = Where (keys, nought, lowest) scores = Add (a, m)",
    "added-near": f"{QK} m = Where (keys, nought, near) scores = Add (a, m)",
    "added-bias-filled": f"{QK} m = Where (keys, bias, lowest) scores = Add (a, m)",
    "added-both": f"{QK} c = And (keys, pairs) m = Where (c, nought, lowest) scores = Add (a, m)",
    "capped": f"""
        {QK} b = Div (a, cap) t = Tanh (b) c = Mul (t, cap) scores = Add (c, hides)""",
    "capped-and-scaled": f"""
        {QK} s = Mul (a, scale) b = Div (s, cap) t = Tanh (b) scores = Mul (t, cap)""",
    "capped-and-turned": f"{QK} b = Div (a, cap) t = Tanh (b) scores = Mul (t, minus)",
    "identity-and-cast": f"{QK} b = Identity (a) c = Cast <to = 1> (b) scores = Mul (c, scale)",
    "einsum": """
        a = Einsum <equation = "bhid,bhjd->bhij"> (q4, k4) scores = Mul (a, scale)""",
    "einsum-with-dots": """
        a = Einsum <equation = "... i d, ... j d -> ... i j"> (q4, k4) scores = Mul (a, scale)""",
    "fused-product": """
        scores = com.microsoft.FusedMatMul <transB = 1, alpha = 0.4> (q4, k4)""",
}
BEHIND = {
    "identity": "p0 = Softmax <axis = -1> (scores) p = Identity (p0)",
    "dropout": "p0 = Softmax <axis = 3> (scores) p = Dropout (p0)",
    "einsum": """
        p0 = Softmax <axis = -1> (scores) p = Identity (p0)
        o6 = Einsum <equation = "bhij,bhjd->bhid"> (p, v4)""",
    "cast": "p0 = Softmax <axis = -1> (scores) p = Cast <to = 1> (p0)",
    "guard": """
        p0 = Softmax <axis = -1> (scores) lost = IsNaN (p0) p = Where (lost, nought, p0)""",
}


def read_by(body: str) -> dict[str, str]:
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    return INPUTS | {name: kind for name, kind in MASKS.items() if name in words}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_stands_before_the_softmax(tmp_path: Path, spelling: str) -> None:
    """With a batch item of which no key counts: large numbers that all keys get say nothing."""
    body = HEADS_APART + SPELLINGS[spelling] + PRODUCTS + TOGETHER
    inputs = read_by(body)
    model = spelled(body, inputs)
    feeds = {n: x for n, x in (queries_keys_values() | masks("all")).items() if n in inputs}
    assert one_node(model, feeds, tmp_path).ours == {"Attention": 1, "Linear": 1}


@pytest.mark.parametrize("behind", BEHIND)
def test_what_stands_behind_the_softmax(tmp_path: Path, behind: str) -> None:
    mixed = "o4 = Identity (o6)" if "o6" in BEHIND[behind] else "o4 = MatMul (p, v4)"
    body = f"{HEADS_APART} {QK} scores = Add (a, hides) {BEHIND[behind]} {mixed} {TOGETHER}"
    feeds = queries_keys_values() | {"hides": masks("some")["hides"]}
    one_node(spelled(body, read_by(body)), feeds, tmp_path, back=False)


GUARDED = f"{BEHIND['guard']} o4 = MatMul (p, v4)"
ENDLESS = {
    "filled": f"{QK} scores = Where (keys, a, endless)",
    "filled-where-not": f"{QK} n = Not (keys) scores = Where (n, endless, a)",
    "added": f"{QK} m = Where (keys, nought, endless) scores = Add (a, m)",
    "added-input": f"{QK} scores = Add (a, hides)",
}


@pytest.mark.parametrize("spelling", ENDLESS)
def test_a_guard_makes_queries_without_keys_0(tmp_path: Path, spelling: str) -> None:
    """As PyTorch's exporter writes `scaled_dot_product_attention`."""
    body = HEADS_APART + ENDLESS[spelling] + GUARDED + TOGETHER
    inputs = read_by(body)
    endless = np.where(masks("all")["keys"], 0, -np.inf).astype(np.float32)
    feeds = queries_keys_values() | masks("all") | {"hides": endless}
    feeds = {name: array for name, array in feeds.items() if name in inputs}
    done = one_node(spelled(body, inputs), feeds, tmp_path)
    assert not done.exact[0][2].any() and done.exact[0][1].any()


def test_a_guard_makes_queries_that_are_no_numbers_0(tmp_path: Path) -> None:
    body = f"{HEADS_APART} scores = MatMul (q4, kt) {GUARDED} {TOGETHER}"
    feeds = queries_keys_values()
    feeds["q"][1, 2] = np.nan
    feeds["v"][0, 1, 3] = np.nan  # which no guard hides
    done = one_node(spelled(body, INPUTS), feeds, tmp_path, back=False)
    assert not done.exact[0][1, 2].any() and np.isnan(done.exact[0][0]).any()


@pytest.mark.parametrize("spelling", ["filled", "added"])
def test_without_a_guard_queries_without_keys_are_0(tmp_path: Path, spelling: str) -> None:
    """The float model gives NaN. ONNX's own Attention says 0, and so do we."""
    body = HEADS_APART + ENDLESS[spelling] + PRODUCTS + TOGETHER
    feeds = queries_keys_values() | {"keys": masks("all")["keys"]}
    done = converted(spelled(body, read_by(body)), feeds, tmp_path)
    assert np.isnan(done.exact[0][2]).all()
    assert not done.outputs[0][2].any()
    assert_same(done.outputs[0][:2], done.exact[0][:2])


CAUSAL = {
    "filled": f"{QK} b = Where (causal, a, lowest) scores = Add (b, hides)",
    "added": f"{QK} m = Where (causal, nought, lowest) b = Add (a, m) scores = Add (b, hides)",
    "capped": f"""{QK} b = Div (a, cap) t = Tanh (b) c = Mul (t, cap)
        d = Where (causal, c, lowest) scores = Add (d, hides)""",
    "guarded": f"{QK} b = Where (causal, a, endless) scores = Add (b, hides)",
}


@pytest.mark.parametrize("spelling", CAUSAL)
def test_a_causal_mask_and_a_padded_start_hide_every_key(tmp_path: Path, spelling: str) -> None:
    """The mean of the keys that come too late but for padding; 0 where it is guarded."""
    body = HEADS_APART + CAUSAL[spelling]
    body += (GUARDED if spelling == "guarded" else PRODUCTS) + TOGETHER
    hides = np.zeros((B, 1, 1, T), np.float32)
    hides[1, ..., :1] = hides[2, ..., :4] = -np.inf
    model = spelled(body, read_by(body), constants={"causal": np.tri(S, T, dtype=bool)[None, None]})
    feeds = queries_keys_values() | {"hides": hides}
    done = one_node(model, feeds, tmp_path)
    assert done.exact[0][2, 3].any() == (spelling != "guarded")


def test_weights_that_are_made_0_again(tmp_path: Path) -> None:
    """As DeBERTa's masked softmax did: then hidden queries give 0, not the mean."""
    body = f"""{HEADS_APART} {QK} scores = Where (keys, a, lowest)
        p0 = Softmax <axis = -1> (scores) p = Where (keys, p0, nought) o4 = MatMul (p, v4)
        {TOGETHER}"""
    feeds = queries_keys_values() | {"keys": masks("all")["keys"]}
    done = one_node(spelled(body, read_by(body)), feeds, tmp_path, back=False)
    assert not done.exact[0][2].any()


@pytest.mark.parametrize("stated", [True, False])
def test_a_mask_that_hides_nothing_goes(tmp_path: Path, stated: bool) -> None:
    """Where the sizes are stated; it might be larger than the products otherwise."""
    body = f"{HEADS_APART} {QK} scores = Where (all, a, lowest) {PRODUCTS} {TOGETHER}"
    inputs = {"q": f"float[B, {S}, {WIDTH}]"} | dict.fromkeys("kv", f"float[B, {T}, {WIDTH}]")
    constants = {"all": np.ones((1, 1, S, T), bool)}
    model = spelled(body, inputs if stated else INPUTS, constants=constants)
    done = one_node(model, queries_keys_values(), tmp_path, back=False)
    assert ("given" in done.node) is not stated


LAYOUTS = {
    "rows": (HEADS_APART, "scores = MatMul (q4, kt)", [0, 0, 0, 0]),
    "turned-keys": (
        """
        q5 = Reshape (q, apart) k5 = Reshape (k, apart) v5 = Reshape (v, apart)
        q4 = Transpose <perm = [0, 2, 1, 3]> (q5) v4 = Transpose <perm = [0, 2, 1, 3]> (v5)
        kt = Transpose <perm = [0, 2, 3, 1]> (k5)""",
        "scores = MatMul (q4, kt)",
        [0, 0, 0, 0],
    ),
    "turned-by-positions": (
        f"{HEADS_APART} qr = Neg (q4) kr = Neg (k4) krt = Transpose <perm = [0, 1, 3, 2]> (kr)",
        "scores = MatMul (qr, krt)",
        [2, 2, 0, 0],
    ),
    "heads-stay-inside": (
        """
        qn = Neg (q) q5 = Reshape (qn, apart) k5 = Reshape (k, apart) v5 = Reshape (v, apart)
        q6 = Neg (q5) k6 = Neg (k5) v6 = Neg (v5)
        q4 = Transpose <perm = [0, 2, 1, 3]> (q6) k4 = Transpose <perm = [0, 2, 1, 3]> (k6)
        v4 = Transpose <perm = [0, 2, 1, 3]> (v6) kt = Transpose <perm = [0, 1, 3, 2]> (k4)""",
        "scores = MatMul (q4, kt)",
        [1, 1, 1, 0],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_queries_keys_and_values_lie_as_they_are(tmp_path: Path, layout: str) -> None:
    before, scores, expected = LAYOUTS[layout]
    model = spelled(before + scores + PRODUCTS + TOGETHER, INPUTS)
    done = one_node(model, queries_keys_values(), tmp_path)
    assert list(done.node.get("layouts", [0, 0, 0, 0])) == expected
    assert "1 attentions became one node each, in float32" in done.report.notes


@pytest.mark.parametrize("repeat", ["Expand", "Tile"])
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "turned-by-positions"])
def test_heads_of_groups_are_not_repeated(tmp_path: Path, repeat: str, rows: bool) -> None:
    """Two heads of keys and values for four of queries."""
    parts = {
        name: f"""
        {name}5 = Reshape ({name}, pairs_apart)
        {name}6 = Transpose <perm = [0, 2, 1, 3]> ({name}5)
        {name}7 = {"Identity" if rows else "Neg"} ({name}6)
        {name}8 = Unsqueeze ({name}7, two)
        {name}9 = {repeat} ({name}8, times)
        {name}4 = Reshape ({name}9, {name}_together)"""
        for name in "kv"
    }
    body = f"""
        q5 = Reshape (q, apart) q4 = Transpose <perm = [0, 2, 1, 3]> (q5)
        batch = Shape <start = 0, end = 1> (k) length = Shape <start = 1, end = 2> (k)
        k_together = Concat <axis = 0> (batch, heads, length, depth)
        v_together = Identity (k_together)
        {parts["k"]} {parts["v"]}
        kt = Transpose <perm = [0, 1, 3, 2]> (k4) scores = MatMul (q4, kt) {PRODUCTS} {TOGETHER}"""
    constants = {
        "pairs_apart": np.array([0, 0, 2, D]),
        "times": np.array([1, 1, 2, 1, 1]),
        "heads": np.array([H]),
        "depth": np.array([D]),
    }
    inputs = INPUTS | dict.fromkeys("kv", f"float[B, T, {WIDTH // 2}]")
    feeds = queries_keys_values()
    feeds |= {name: feeds[name][..., : WIDTH // 2].copy() for name in "kv"}
    done = one_node(spelled(body, inputs, constants=constants), feeds, tmp_path)
    assert done.node["groups"] == 2


def test_keys_and_values_of_a_cache(tmp_path: Path) -> None:
    """They come first; a decoder hands all of them on."""
    body = f"""{HEADS_APART}
        keys_now = Concat <axis = 2> (past_k, k4) values_now = Concat <axis = 2> (past_v, v4)
        knt = Transpose <perm = [0, 1, 3, 2]> (keys_now)
        scores = MatMul (q4, knt) p = Softmax <axis = -1> (scores) o4 = MatMul (p, values_now)
        {TOGETHER}"""
    past = {f"past_{n}": rng(5).standard_normal((B, H, 4, D)).astype(np.float32) for n in "kv"}
    inputs = INPUTS | dict.fromkeys(past, f"float[B, {H}, P, {D}]")
    model = spelled(body, inputs, ("o", "y", "keys_now", "values_now"))
    done = one_node(model, queries_keys_values() | past, tmp_path, back=False)
    for found, exact in zip(done.outputs[2:], done.exact[2:], strict=True):
        assert np.array_equal(found, exact)


def test_windows_have_an_axis_more(tmp_path: Path) -> None:
    """[B, windows, H, L, D]; a mask of windows is added."""
    body = f"""
        kt = Transpose <perm = [0, 1, 2, 4, 3]> (k) a = MatMul (q, kt) scores = Add (a, bias)
        p = Softmax <axis = 4> (scores) o = MatMul (p, v) flat = Reshape (o, joined_{WIDTH})
        y = MatMul (flat, w)"""
    r = rng(3)
    feeds = {n: r.standard_normal((2, 3, H, S, D)).astype(np.float32) for n in "qkv"}
    feeds["bias"] = r.standard_normal((3, 1, S, S)).astype(np.float32)
    inputs = dict.fromkeys("qkv", f"float[B, W, {H}, S, {D}]") | {"bias": "float[W, 1, S, S]"}
    constants = {f"joined_{WIDTH}": np.array([-1, WIDTH])}
    one_node(spelled(body, inputs, constants=constants), feeds, tmp_path, back=False)


BMM = {
    "masked-apart": """
        s4 = Reshape (a, scores_apart) s5 = Add (s4, hides) s3 = Reshape (s5, scores_joined)
        p = Softmax <axis = -1> (s3)""",
    "softmax-apart": """
        s2 = Add (a, bias3) s4 = Reshape (s2, scores_apart) s5 = Where (keys, s4, lowest)
        p4 = Softmax <axis = -1> (s5) p = Reshape (p4, scores_joined)""",
    "no-mask": "p = Softmax <axis = -1> (a)",
}


@pytest.mark.parametrize("spelling", BMM)
def test_batch_and_heads_as_one_axis(tmp_path: Path, spelling: str) -> None:
    """As `torch.bmm` has them."""
    body = f"""{HEADS_APART}
        q3 = Reshape (q4, rows) k3 = Reshape (k4, columns) v3 = Reshape (v4, columns)
        kt3 = Transpose <perm = [0, 2, 1]> (k3) qs = Mul (q3, scale) a = MatMul (qs, kt3)
        {BMM[spelling]}
        o3 = MatMul (p, v3) o4 = Reshape (o3, result_apart) {TOGETHER}"""
    inputs = {
        n: kind.replace("S", str(S)).replace("T", str(T)) for n, kind in read_by(body).items()
    }
    if "bias3" in body:
        inputs["bias3"] = f"float[N, {S}, {T}]"
    constants = {
        "rows": np.array([-1, S, D]),
        "columns": np.array([-1, T, D]),
        "scores_apart": np.array([-1, H, S, T]),
        "scores_joined": np.array([-1, S, T]),
        "result_apart": np.array([-1, H, S, D]),
    }
    feeds = queries_keys_values() | masks("all")
    feeds["bias3"] = rng(9).standard_normal((B * H, S, T)).astype(np.float32)
    feeds = {name: array for name, array in feeds.items() if name in inputs}
    done = one_node(spelled(body, inputs, constants=constants), feeds, tmp_path)
    if spelling != "no-mask":
        assert "layouts" not in done.node


LEFT = {
    "relu": (f"{QK} scores = Relu (a) {PRODUCTS}", "between product and softmax", ()),
    "scores-read": (
        f"{QK} scores = Mul (a, scale) {PRODUCTS}",
        "scores are read elsewhere",
        ("a",),
    ),
    "weights-read": (f"scores = MatMul (q4, kt) {PRODUCTS}", "weights are read elsewhere", ("p",)),
    "another-axis": (
        "scores = MatMul (q4, kt) p = Softmax <axis = 2> (scores) o4 = MatMul (p, v4)",
        "not over the last axis",
        (),
    ),
    "hidden-keys-get-a-weight": (
        f"{QK} b = Where (keys, a, near) scores = Mul (b, thousandth) {PRODUCTS}",
        "leaves hidden keys a weight",
        (),
    ),
    "two-numbers-hide": (
        f"{QK} b = Where (keys, a, near) scores = Where (pairs, b, far) {PRODUCTS}",
        "two numbers that hide keys",
        (),
    ),
    "filled-between-sums": (
        f"{QK} b = Add (a, bias) c = Where (pairs, b, near) scores = Add (c, hides) {PRODUCTS}",
        "Where between two sums",
        (),
    ),
    "head-mask": (
        "scores = MatMul (q4, kt) p0 = Softmax <axis = -1> (scores) p = Mul (p0, hides) "
        "o4 = MatMul (p, v4)",
        "between softmax and product",
        (),
    ),
}


@pytest.mark.parametrize("spelling", LEFT)
def test_what_is_left_is_in_the_report(tmp_path: Path, spelling: str) -> None:
    middle, reason, outputs = LEFT[spelling]
    body = HEADS_APART + middle + TOGETHER
    model = spelled(body, read_by(body), ("o", "y", *outputs))
    softmax = next(n for n in model.graph.node if n.op_type == "Softmax")
    softmax.name = "weights_of_it"
    feeds = queries_keys_values() | masks("some")
    feeds = {name: array for name, array in feeds.items() if name in read_by(body)}
    done = converted(model, feeds, tmp_path)
    assert "Attention" not in done.ours
    (note,) = [note for note in done.report.notes if "softmax between two products" in note]
    assert reason in note and "weights_of_it" in note
    assert_same(done.outputs[0], done.exact[0])


def test_a_softmax_after_a_layer_is_no_attention(tmp_path: Path) -> None:
    """A classifier's, or a mixture of experts'."""
    body = "a = MatMul (q, w1) p = Softmax <axis = -1> (a) o = MatMul (p, w2) y = MatMul (o, w)"
    r = rng(1)
    constants = {
        "w1": r.standard_normal((WIDTH, 12)).astype(np.float32),
        "w2": r.standard_normal((12, WIDTH)).astype(np.float32),
    }
    model = spelled(body, {"q": INPUTS["q"]}, constants=constants)
    done = converted(model, {"q": queries_keys_values()["q"]}, tmp_path)
    assert "Attention" not in done.ours
    assert not [note for note in done.report.notes if "softmax" in note]


# As gpt-oss spells them.
SINKS = np.array([3.0, -2.0, 0.5, 40.0], np.float32).reshape(1, H, 1, 1)
SINK_CONSTANTS = {
    "sinks": SINKS,
    "one_sink": SINKS[:, :1],
    "wide": np.array([B, H, S, 1]),
    "minus": np.array([-1]),
    "third": np.array([3]),
}
BEFORE_SINKS = HEADS_APART + " a = MatMul (q4, kt) m = Mul (a, scale) scores = Add (m, hides) "
SUNK = " s = Expand (sinks, wide) both = Concat <axis = -1> (scores, s) "
LARGEST = " top = ReduceMax <axes = [-1]> (both) less = Sub (both, top) "
DROPPED = " c = Slice (p, first, minus, third, one) o4 = MatMul (c, v4) "
SUNKEN = {
    "plain": f"{SUNK} p = Softmax <axis = -1> (both) {DROPPED}",
    "less the largest": f"{SUNK} {LARGEST} p = Softmax <axis = -1> (less) {DROPPED}",
    "behind casts": f"""{SUNK} {LARGEST} n = Softmax <axis = 3> (less) p = Cast <to = 1> (n)
        {DROPPED}""",
}
NEARLY_SUNKEN = {
    "the first weight dropped": f"""{SUNK} p = Softmax <axis = -1> (both)
        c = Slice (p, one, end, third) o4 = MatMul (c, v4)""",
    "one sink for all heads": f"""s = Expand (one_sink, wide) both = Concat <axis = -1> (scores, s)
        p = Softmax <axis = -1> (both) {DROPPED}""",
    "the smallest taken away": f"""{SUNK} top = ReduceMin <axes = [-1]> (both)
        less = Sub (both, top) p = Softmax <axis = -1> (less) {DROPPED}""",
    "the sink first": f"""s = Expand (sinks, wide) both = Concat <axis = -1> (s, scores)
        p = Softmax <axis = -1> (both) {DROPPED}""",
}


def sunken() -> dict[str, Array]:
    """The last item has no keys: its sinks take all, and it gives 0."""
    return queries_keys_values() | {"hides": masks("all")["hides"]}


@pytest.mark.parametrize("form", SUNKEN)
def test_sinks_are_an_input(tmp_path: Path, form: str) -> None:
    inputs = INPUTS | {"hides": "float[B, 1, 1, T]"}
    model = spelled(BEFORE_SINKS + SUNKEN[form] + TOGETHER, inputs, constants=SINK_CONSTANTS)
    done = one_node(model, sunken(), tmp_path)
    assert done.ours == {"Attention": 1, "Linear": 1}
    assert done.node["given"] == b"bias sinks"
    assert not done.outputs[0][2].any()


@pytest.mark.parametrize("form", NEARLY_SUNKEN)
def test_what_only_looks_like_sinks_stays(tmp_path: Path, form: str) -> None:
    inputs = INPUTS | {"hides": "float[B, 1, 1, T]"}
    model = spelled(BEFORE_SINKS + NEARLY_SUNKEN[form] + TOGETHER, inputs, constants=SINK_CONSTANTS)
    done = converted(model, sunken(), tmp_path)
    assert done.ours == {"Linear": 1}
    assert any("a softmax between two products" in note for note in done.report.notes)
    assert_same(done.outputs[0], done.exact[0])


def test_sinks_are_as_many_as_heads() -> None:
    x = {n: rng(i).standard_normal((1, 5, 16)).astype(np.float32) for i, n in enumerate("QKV")}
    with pytest.raises(REFUSALS, match=r"sinks has shape \[3\]; it has to be \[2\]"):
        run_op("Attention", x | {"sinks": np.zeros(3, np.float32)}, {}, heads=2, given="sinks")
