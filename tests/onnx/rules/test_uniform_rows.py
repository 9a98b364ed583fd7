"""A NaN or infinity that only one number of a row holds must reach the layers after it.

Each graph here makes rows in which a few numbers are not finite, in a way that an analysis of
"NaN everywhere or nowhere" might misjudge, and lets a quantized layer read them. Wherever all of
the float model's output row is NaN, the quantized one's is not finite either; other rows keep
their bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.graphs import Array, convert, opened, run, text, values, weight

K, N, ROWS = 48, 24, 6
NAN, INF = float("nan"), float("inf")


def layer_norm(x: str, out: str, p: str = "l") -> str:
    """Written out, as exporters write it."""
    return f"""
        {p}m = ReduceMean <axes = [-1]> ({x})
        {p}d = Sub ({x}, {p}m)
        {p}s = Pow ({p}d, two)
        {p}v = ReduceMean <axes = [-1]> ({p}s)
        {p}e = Add ({p}v, eps)
        {p}q = Sqrt ({p}e)
        {out} = Div ({p}d, {p}q)
    """


OF_X, OF_Z = "n = MatMul (x, square) ", "n = MatMul (z, square) "
GELU = "ga = Div (n, root2) gb = Erf (ga) gc = Add (gb, one) gd = Mul (n, gc) h = Mul (gd, half)"
MEAN_OF_Z = OF_Z + "m = ReduceMean <axes = [-1]> (z) "
MINUS_MEAN = "m = ReduceMean <axes = [-1]> (x) s = Sub (x, m) "
RELU_OF_Z = OF_Z + "r = Relu (n) "
NORM_OF_Z = "n = LayerNormalization (z, gamma, beta) "
MS_SKIP = "com.microsoft.SkipLayerNormalization"
# Nodes from x and z [ROWS, K] to h [ROWS, K], whose reader's rows cost no sum.
SPREADING = {
    "LayerNormalization": "h = LayerNormalization (x, gamma, beta)",
    "LayerNormalization-Relu": "n = LayerNormalization (x, gamma, beta) h = Relu (n)",
    "written-out": layer_norm("x", "h"),
    "written-out-gamma-beta": layer_norm("x", "n") + "ng = Mul (n, gamma) h = Add (ng, beta)",
    "linear-gelu": OF_X + GELU,
    "linear-Gelu": OF_X + "h = com.microsoft.Gelu (n)",
    "linear-Relu": OF_X + "h = Relu (n)",
    "linear-bias-Relu": "n = Gemm (x, square, beta) h = Relu (n)",
    "linear-Sigmoid-Mul": OF_X + "s = Sigmoid (n) h = Mul (n, s)",
    "residual": OF_X + "r = Add (n, x) h = LayerNormalization (r, gamma, beta)",
    "SkipLayerNormalization": f"h = {MS_SKIP} (x, z, gamma, beta)",
}
GRAPHS = {
    **SPREADING,
    "x": "h = Identity (x)",
    "written-out-Relu": layer_norm("x", "n") + "h = Relu (n)",
    "written-out-Tanh": layer_norm("x", "n") + "h = Tanh (n)",
    "linear": "h = MatMul (x, square)",
    "linear-Tanh": OF_X + "h = Tanh (n)",
    # What does not spread a NaN over its row.
    "residual-only": OF_Z + "h = Add (n, x)",
    "product-with-x": OF_Z + "h = Mul (n, x)",
    "linear-minus-x-Relu": OF_Z + "s = Sub (n, x) h = Relu (s)",
    "bias-is-an-activation": "h = Gemm (z, square, x)",
    "bias-is-an-activation-Relu": "n = Gemm (z, square, x) h = Relu (n)",
    "bias-is-an-activation-beta": "h = Gemm <beta = 0.5> (z, square, x)",
    "minus-its-mean": MINUS_MEAN + "h = Identity (s)",
    "minus-its-mean-Relu": MINUS_MEAN + "h = Relu (s)",
    "minus-its-mean-Sigmoid": MINUS_MEAN + "h = Sigmoid (s)",
    "mean-of-the-other": "m = ReduceMean <axes = [-1]> (z) h = Sub (x, m)",
    "mean-over-the-batch": """
        m = ReduceMean <axes = [0]> (z)
        s = Sub (x, m)
        p = Pow (s, two)
        v = ReduceMean <axes = [0]> (p)
        e = Add (v, eps)
        q = Sqrt (e)
        h = Div (s, q)
    """,
    "mean-plus-x": MEAN_OF_Z + "mx = Add (m, x) h = Mul (n, mx)",
    "x-plus-mean": MEAN_OF_Z + "mx = Add (x, m) h = Mul (n, mx)",
    "max-of-mean-and-x": MEAN_OF_Z + "mx = Max (m, x) h = Mul (n, mx)",
    "norm-times-x": NORM_OF_Z + "h = Mul (n, x)",
    "variance-of-another": layer_norm("z", "zn", "z")
    + "m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) n = Div (d, zq) h = Relu (n)",
    "rms-norm-written-out": """
        p = Pow (x, two)
        v = ReduceMean <axes = [-1]> (p)
        e = Add (v, eps)
        q = Sqrt (e)
        i = Reciprocal (q)
        h = Mul (x, i)
    """,
    "rms-norm": "h = SimplifiedLayerNormalization <axis = -1> (x, gamma)",
    "skip-rms-norm": "h = com.microsoft.SkipSimplifiedLayerNormalization (x, z, gamma)",
    "norm-with-NaN-in-gamma": "h = LayerNormalization (x, bad_gamma, beta)",
    "norm-with-inf-in-beta": "h = LayerNormalization (x, gamma, inf_beta)",
    "skip-norm-with-NaN-in-gamma": f"h = {MS_SKIP} (x, z, bad_gamma, beta)",
    "norm-over-all-axes": """
        t = Reshape (x, one_row)
        u = LayerNormalization <axis = 1> (t, gamma2, beta2)
        h = Reshape (u, rows)
    """,
    "norm-over-the-first-of-three": """
        t = Reshape (x, folded)
        u = LayerNormalization <axis = 1> (t, gamma3)
        h = Reshape (u, rows)
    """,
    "linear-Sqrt": OF_Z + "h = Sqrt (n)",
    "norm-Sqrt": NORM_OF_Z + "h = Sqrt (n)",
    "linear-to-a-fraction": OF_Z + "h = Pow (n, half)",
    "linear-to-the-linear": OF_Z + "h = Pow (n, n)",
    "a-number-to-the-linear": OF_Z + "h = Pow (beta, n)",
    "Relu-over-Relu": RELU_OF_Z + "h = Div (r, r)",
    "Relu-over-zeros": RELU_OF_Z + "s = Div (r, some_zeros) h = Tanh (s)",
    "zero-over-Relu": RELU_OF_Z + "h = Div (zero, r)",
    "Reciprocal-times": RELU_OF_Z + "i = Reciprocal (r) h = Mul (i, r)",
    "Exp-times": """
        zz = Mul (z, hundred)
        n = MatMul (zz, square)
        e = Exp (n)
        r = Relu (n)
        rn = Neg (r)
        nought = Relu (rn)
        h = Mul (e, nought)
    """,
    "over-its-sum": NORM_OF_Z
    + """
        s = ReduceSum <keepdims = 1> (n, last)
        nothing = Sub (s, s)
        i = Div (n, nothing)
        o = Mul (i, some_zeros)
        h = Tanh (o)
    """,
    # One number a row of x becomes one number in a row of h.
    "vector-weight": """
        c = Reshape (x, cube)
        v = MatMul (c, vector)
        vr = Relu (v)
        h = MatMul (vr, expand)
    """,
    "transposed": OF_X
    + """
        t = Transpose (n)
        r = Relu (t)
        u = MatMul (r, from_rows)
        w0 = Transpose (u)
        w1 = MatMul (w0, square)
        h = MatMul (to_rows, w1)
    """,
    "slice": OF_Z + "c = Concat <axis = -1> (n, x) h = Slice (c, begin, end, last)",
    "where": OF_Z + "b = Greater (x, z) h = Where (b, n, x)",
    "softmax-times": OF_Z + "s = Softmax <axis = 0> (n) h = Mul (s, x)",
    "attention-context": """
        q = MatMul (z, square)
        qt = Transpose (q)
        scores = MatMul (z, qt)
        p = Softmax (scores)
        h = MatMul (p, x)
    """,
    "dropout-in-training": OF_X + "h = Dropout <seed = 3> (n, ratio, training)",
    "foreign-Relu": OF_Z + "m = Mul (n, x) h = Relu (m)",
    "clip": "h = Clip (x, low, high)",
    "max-with-zero": "h = Max (x, zero)",
    "cast-through-float16": "c = Cast <to = 10> (x) h = Cast <to = 1> (c)",
}
CONSTANTS = {
    "w": weight(K, N, spread=False, seed=24),
    "square": weight(K, K, spread=False, seed=21),
    "vector": weight(K, seed=23),
    "expand": weight(K, K, spread=False, seed=31),
    "from_rows": weight(ROWS, ROWS, spread=False, seed=32),
    "to_rows": np.eye(ROWS, dtype=np.float32),
    "gamma": np.linspace(0.5, 1.5, K, dtype=np.float32),
    "gamma2": np.ones(ROWS * K, np.float32),
    "gamma3": np.ones((2, K), np.float32),
    "bad_gamma": np.where(np.arange(K) == 5, np.nan, 1).astype(np.float32),
    "beta": 0.1 * values(K, seed=22),
    "beta2": np.zeros(ROWS * K, np.float32),
    "inf_beta": np.where(np.arange(K) == 5, np.inf, 0).astype(np.float32),
    "some_zeros": (np.arange(K) % 3 != 0).astype(np.float32),
    **{"two": np.float32(2), "one": np.float32(1), "half": np.float32(0.5)},
    **{"zero": np.float32(0), "hundred": np.float32(100), "eps": np.float32(1e-5)},
    **{"root2": np.float32(2**0.5), "low": np.float32(-1), "high": np.float32(1)},
    **{"ratio": np.float32(0.5), "training": np.array(True), "last": np.array([-1])},
    **{"begin": np.array([K // 2]), "end": np.array([K // 2 + K])},
    **{"one_row": np.array([1, ROWS * K]), "rows": np.array([ROWS, K])},
    **{"folded": np.array([ROWS // 2, 2, K]), "cube": np.array([ROWS, K, K])},
}


def model_of(graph: str) -> onnx.ModelProto:
    rows = ROWS * K if graph == "vector-weight" else ROWS
    inputs = f"float[{rows}, {K}] x, float[{ROWS}, {K}] z"
    return text(GRAPHS[graph] + " [reader] y = MatMul (h, w)", inputs, weights=CONSTANTS)


def injections(feeds: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """The feeds as they are, and with what is not finite in row 2."""
    yield feeds
    for bad in (NAN, INF, -INF):
        for columns in (0, K // 2 + 1, K - 1, slice(None), [1, K - 2]):
            x = feeds["x"].copy()
            x[2, columns] = [bad, -bad] if isinstance(columns, list) else bad
            yield {**feeds, "x": x}


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_is_not_finite_reaches_the_output(tmp_path: Path, graph: str) -> None:
    """Rows that are NaN throughout in float are not finite in int8."""
    model = model_of(graph)
    done = convert(model, tmp_path)
    assert done.outcome("reader").quantized
    saved = "h_sum" not in {o for n in done.proto.graph.node for o in n.output}
    assert saved or graph not in SPREADING, "its rows are summed, which costs a pass over them"
    theirs, ours = opened(model), opened(done.path)
    rows = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    given = {"x": values(rows, K, seed=25), "z": values(ROWS, K, seed=26)}
    spoilt_rows = 0
    for i, feeds in enumerate(injections(given)):
        floats, y = theirs.run(None, feeds)[0], ours.run(None, feeds)[0]
        spoilt = np.isnan(floats).all(axis=-1)
        hidden = spoilt & np.isfinite(y).any(axis=-1)
        assert not hidden.any(), f"rows {np.flatnonzero(hidden)} came out finite"
        if i == 0:
            assert np.isfinite(y)[np.isfinite(floats)].all()
        spoilt_rows += int(spoilt.sum())
    assert spoilt_rows > 0, "the graph gives no row of NaN in float either: it shows nothing"


def test_an_embedding_norm_with_NaN_in_gamma(tmp_path: Path) -> None:
    ids = "ids, , word, position, , bad_gamma, beta"
    body = f"""[norm] h, n = com.microsoft.EmbedLayerNormalization ({ids})
        [reader] y = MatMul (h, w)"""
    tables = {"word": weight(40, K, seed=1), "position": weight(8, K, seed=2)}
    model = text(body, "int32[2, 5] ids", weights=CONSTANTS | tables)
    for options in ({}, {"nodes_to_exclude": ["norm"]}):
        done = convert(model, tmp_path, **options)
        assert np.isnan(run(done.path, {"ids": np.ones((2, 5), np.int32)})[0]).all()


def test_a_lookup_is_not_taken_for_a_layer_per_row(tmp_path: Path) -> None:
    """Its rows are finite by themselves; what is added to them need not be."""
    body = "e = Gather (t, i) h = Add (e, x) [reader] y = MatMul (h, w)"
    weights = {"t": weight(200, K), "w": weight(K, N)}
    model = text(body, f"int64[{ROWS}] i, float[{ROWS}, {K}] x", weights=weights)
    x = values(ROWS, K)
    x[3, 7] = np.nan
    y = run(convert(model, tmp_path).path, {"i": np.arange(ROWS), "x": x})[0]
    assert np.isnan(y[3]).all()
    assert np.isfinite(np.delete(y, 3, 0)).all()


def test_an_operator_of_another_domain_is_not_known(tmp_path: Path) -> None:
    """A local function called Relu that puts NaN where it likes: for negative numbers."""
    body = "n = MatMul (x, square) h = mine.Relu (n) [reader] y = MatMul (h, w)"
    model = text(body, f"float[{ROWS}, {K}] x", weights=CONSTANTS)
    root = [
        helper.make_node("Constant", [], ["k"], value_float=0.5),
        helper.make_node("Pow", ["a", "k"], ["b"]),
    ]
    known = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("mine", "Relu", ["a"], ["b"], root, known))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    feeds = {"x": values(ROWS, K)}
    assert np.isnan(run(model, feeds)[0]).all()
    assert np.isnan(run(convert(model, tmp_path).path, feeds)[0]).all()


@pytest.mark.parametrize("graph", ["x", "linear-Relu", "residual-only", "attention-context"])
def test_two_activations(tmp_path: Path, graph: str) -> None:
    """A NaN in the right operand, which has one scale for all of it, is not lost either."""
    inputs = f"float[{ROWS}, {K}] x, float[{ROWS}, {K}] z, float[4, {ROWS}] z2"
    model = text(GRAPHS[graph] + " [reader] y = MatMul (z2, h)", inputs, weights=CONSTANTS)
    model.graph.value_info.append(helper.make_tensor_value_info("h", 1, (ROWS, K)))
    done = convert(model, tmp_path, nodes_to_quantize=["reader"])
    feeds = {"x": values(ROWS, K), "z": values(ROWS, K, seed=4), "z2": values(4, ROWS, seed=5)}
    feeds["x"][2, 5] = np.nan
    expected = np.isnan(run(model, feeds)[0])
    assert expected.any()
    assert not np.isfinite(run(done.path, feeds)[0])[expected].any()
