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

from tests.graphs import (
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
    MS,
    Array,
    build,
    convert,
    node,
    opened,
    run,
    values,
    weight,
)

K, N, ROWS = 48, 24, 6
NAN, INF = float("nan"), float("inf")

# Nodes from x and z [ROWS, K] to h [ROWS, K]; `d` names the axis of reductions.
Nodes = list[onnx.NodeProto]


def layer_norm(x: str, out: str, prefix: str = "l") -> Nodes:
    """Written out, as exporters write it."""
    p = prefix
    return [
        node("ReduceMean", [x], [f"{p}m"], axes=[-1]),
        node("Sub", [x, f"{p}m"], [f"{p}d"]),
        node("Pow", [f"{p}d", "two"], [f"{p}s"]),
        node("ReduceMean", [f"{p}s"], [f"{p}v"], axes=[-1]),
        node("Add", [f"{p}v", "eps"], [f"{p}e"]),
        node("Sqrt", [f"{p}e"], [f"{p}q"]),
        node("Div", [f"{p}d", f"{p}q"], [out]),
    ]


def gelu(x: str, out: str) -> Nodes:
    return [
        node("Div", [x, "root2"], ["ga"]),
        node("Erf", ["ga"], ["gb"]),
        node("Add", ["gb", "one"], ["gc"]),
        node("Mul", [x, "gc"], ["gd"]),
        node("Mul", ["gd", "half"], [out]),
    ]


def linear(x: str, out: str) -> Nodes:
    return [node("MatMul", [x, "square"], [out])]


CONSTANTS = {
    "two": np.float32(2),
    "eps": np.float32(1e-5),
    "zero_eps": np.float32(0),
    "root2": np.float32(2**0.5),
    "one": np.float32(1),
    "half": np.float32(0.5),
    "square": weight(K, K, spread=False, seed=21),
    "gamma": np.linspace(0.5, 1.5, K, dtype=np.float32),
    "beta": 0.1 * values(K, seed=22),
    "bad_gamma": np.where(np.arange(K) == 5, np.nan, 1).astype(np.float32),
    "inf_beta": np.where(np.arange(K) == 5, np.inf, 0).astype(np.float32),
    "some_zeros": (np.arange(K) % 3 != 0).astype(np.float32),
    "vector": weight(K, seed=23),
}

GRAPHS: dict[str, Nodes] = {
    "x": [node("Identity", ["x"], ["h"])],
    # What does spread a NaN over its row.
    "LayerNormalization": [node("LayerNormalization", ["x", "gamma", "beta"], ["h"])],
    "LayerNormalization-Relu": [
        node("LayerNormalization", ["x", "gamma", "beta"], ["n"]),
        node("Relu", ["n"], ["h"]),
    ],
    "written-out": layer_norm("x", "h"),
    "written-out-Relu": [*layer_norm("x", "n"), node("Relu", ["n"], ["h"])],
    "written-out-Tanh": [*layer_norm("x", "n"), node("Tanh", ["n"], ["h"])],
    "written-out-gamma-beta": [
        *layer_norm("x", "n"),
        node("Mul", ["n", "gamma"], ["ng"]),
        node("Add", ["ng", "beta"], ["h"]),
    ],
    "linear": linear("x", "h"),
    "linear-gelu": [*linear("x", "n"), *gelu("n", "h")],
    "linear-Gelu": [*linear("x", "n"), node("Gelu", ["n"], ["h"], domain=MS)],
    "linear-Relu": [*linear("x", "n"), node("Relu", ["n"], ["h"])],
    "linear-Tanh": [*linear("x", "n"), node("Tanh", ["n"], ["h"])],
    "linear-Sigmoid-Mul": [
        *linear("x", "n"),
        node("Sigmoid", ["n"], ["s"]),
        node("Mul", ["n", "s"], ["h"]),
    ],
    "linear-bias-Relu": [
        node("Gemm", ["x", "square", "beta"], ["n"]),
        node("Relu", ["n"], ["h"]),
    ],
    "residual": [
        *linear("x", "n"),
        node("Add", ["n", "x"], ["r"]),
        node("LayerNormalization", ["r", "gamma", "beta"], ["h"]),
    ],
    "SkipLayerNormalization": [
        node("SkipLayerNormalization", ["x", "z", "gamma", "beta"], ["h"], domain=MS)
    ],
    # What does not.
    "residual-only": [*linear("z", "n"), node("Add", ["n", "x"], ["h"])],
    "product-with-x": [*linear("z", "n"), node("Mul", ["n", "x"], ["h"])],
    "linear-minus-x-Relu": [
        *linear("z", "n"),
        node("Sub", ["n", "x"], ["s"]),
        node("Relu", ["s"], ["h"]),
    ],
    "bias-is-an-activation": [node("Gemm", ["z", "square", "x"], ["h"])],
    "bias-is-an-activation-Relu": [
        node("Gemm", ["z", "square", "x"], ["n"]),
        node("Relu", ["n"], ["h"]),
    ],
    "bias-is-an-activation-beta": [node("Gemm", ["z", "square", "x"], ["h"], beta=0.5)],
    "minus-its-mean": [
        node("ReduceMean", ["x"], ["m"], axes=[-1]),
        node("Sub", ["x", "m"], ["h"]),
    ],
    "minus-its-mean-Relu": [
        node("ReduceMean", ["x"], ["m"], axes=[-1]),
        node("Sub", ["x", "m"], ["s"]),
        node("Relu", ["s"], ["h"]),
    ],
    "minus-its-mean-Sigmoid": [
        node("ReduceMean", ["x"], ["m"], axes=[-1]),
        node("Sub", ["x", "m"], ["s"]),
        node("Sigmoid", ["s"], ["h"]),
    ],
    "mean-of-the-other": [
        node("ReduceMean", ["z"], ["m"], axes=[-1]),
        node("Sub", ["x", "m"], ["h"]),
    ],
    "mean-over-the-batch": [
        node("ReduceMean", ["z"], ["m"], axes=[0]),
        node("Sub", ["x", "m"], ["s"]),
        node("Pow", ["s", "two"], ["p"]),
        node("ReduceMean", ["p"], ["v"], axes=[0]),
        node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["q"]),
        node("Div", ["s", "q"], ["h"]),
    ],
    "mean-plus-x": [
        *linear("z", "n"),
        node("ReduceMean", ["z"], ["m"], axes=[-1]),
        node("Add", ["m", "x"], ["mx"]),
        node("Mul", ["n", "mx"], ["h"]),
    ],
    "x-plus-mean": [
        *linear("z", "n"),
        node("ReduceMean", ["z"], ["m"], axes=[-1]),
        node("Add", ["x", "m"], ["mx"]),
        node("Mul", ["n", "mx"], ["h"]),
    ],
    "max-of-mean-and-x": [
        *linear("z", "n"),
        node("ReduceMean", ["z"], ["m"], axes=[-1]),
        node("Max", ["m", "x"], ["mx"]),
        node("Mul", ["n", "mx"], ["h"]),
    ],
    "norm-times-x": [
        node("LayerNormalization", ["z", "gamma", "beta"], ["n"]),
        node("Mul", ["n", "x"], ["h"]),
    ],
    "variance-of-another": [
        *layer_norm("z", "zn", "z"),
        node("ReduceMean", ["x"], ["m"], axes=[-1]),
        node("Sub", ["x", "m"], ["d"]),
        node("Div", ["d", "zq"], ["n"]),
        node("Relu", ["n"], ["h"]),
    ],
    "rms-norm-written-out": [
        node("Pow", ["x", "two"], ["p"]),
        node("ReduceMean", ["p"], ["v"], axes=[-1]),
        node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["q"]),
        node("Reciprocal", ["q"], ["i"]),
        node("Mul", ["x", "i"], ["h"]),
    ],
    "rms-norm": [node("SimplifiedLayerNormalization", ["x", "gamma"], ["h"], axis=-1)],
    "skip-rms-norm": [
        node("SkipSimplifiedLayerNormalization", ["x", "z", "gamma"], ["h"], domain=MS)
    ],
    "norm-with-NaN-in-gamma": [node("LayerNormalization", ["x", "bad_gamma", "beta"], ["h"])],
    "norm-with-inf-in-beta": [node("LayerNormalization", ["x", "gamma", "inf_beta"], ["h"])],
    "skip-norm-with-NaN-in-gamma": [
        node("SkipLayerNormalization", ["x", "z", "bad_gamma", "beta"], ["h"], domain=MS)
    ],
    "norm-over-all-axes": [
        node("Reshape", ["x", "one_row"], ["t"]),
        node("LayerNormalization", ["t", "gamma2", "beta2"], ["u"], axis=1),
        node("Reshape", ["u", "rows"], ["h"]),
    ],
    "norm-over-the-first-of-three": [
        node("Reshape", ["x", "folded"], ["t"]),
        node("LayerNormalization", ["t", "gamma3"], ["u"], axis=1),
        node("Reshape", ["u", "rows"], ["h"]),
    ],
    "linear-Sqrt": [*linear("z", "n"), node("Sqrt", ["n"], ["h"])],
    "norm-Sqrt": [
        node("LayerNormalization", ["z", "gamma", "beta"], ["n"]),
        node("Sqrt", ["n"], ["h"]),
    ],
    "linear-to-a-fraction": [*linear("z", "n"), node("Pow", ["n", "half"], ["h"])],
    "linear-to-the-linear": [*linear("z", "n"), node("Pow", ["n", "n"], ["h"])],
    "a-number-to-the-linear": [*linear("z", "n"), node("Pow", ["beta", "n"], ["h"])],
    "Relu-over-Relu": [
        *linear("z", "n"),
        node("Relu", ["n"], ["r"]),
        node("Div", ["r", "r"], ["h"]),
    ],
    "Relu-over-zeros": [
        *linear("z", "n"),
        node("Relu", ["n"], ["r"]),
        node("Div", ["r", "some_zeros"], ["s"]),
        node("Tanh", ["s"], ["h"]),
    ],
    "zero-over-Relu": [
        *linear("z", "n"),
        node("Relu", ["n"], ["r"]),
        node("Div", ["zero_eps", "r"], ["h"]),
    ],
    "Reciprocal-times": [
        *linear("z", "n"),
        node("Relu", ["n"], ["r"]),
        node("Reciprocal", ["r"], ["i"]),
        node("Mul", ["i", "r"], ["h"]),
    ],
    "Exp-times": [
        node("Mul", ["z", "hundred"], ["zz"]),
        *linear("zz", "n"),
        node("Exp", ["n"], ["e"]),
        node("Relu", ["n"], ["r"]),
        node("Neg", ["r"], ["rn"]),
        node("Relu", ["rn"], ["zero"]),
        node("Mul", ["e", "zero"], ["h"]),
    ],
    "over-its-sum": [
        node("LayerNormalization", ["z", "gamma", "beta"], ["n"]),
        node("ReduceSum", ["n", "last"], ["s"], keepdims=1),
        node("Sub", ["s", "s"], ["nothing"]),
        node("Div", ["n", "nothing"], ["i"]),
        node("Mul", ["i", "some_zeros"], ["o"]),
        node("Tanh", ["o"], ["h"]),
    ],
    "vector-weight": [
        # One number a row of x becomes one number in a row of h.
        node("Reshape", ["x", "cube"], ["c"]),
        node("MatMul", ["c", "vector"], ["v"]),
        node("Relu", ["v"], ["vr"]),
        node("Reshape", ["wide", "rows"], ["unused"]),
        node("MatMul", ["vr", "expand"], ["h"]),
    ],
    "transposed": [
        *linear("x", "n"),
        node("Transpose", ["n"], ["t"]),
        node("Relu", ["t"], ["r"]),
        node("MatMul", ["r", "from_rows"], ["u"]),
        node("Transpose", ["u"], ["w0"]),
        node("MatMul", ["w0", "square"], ["w1"]),
        node("MatMul", ["to_rows", "w1"], ["h"]),
    ],
    "slice": [
        *linear("z", "n"),
        node("Concat", ["n", "x"], ["c"], axis=-1),
        node("Slice", ["c", "begin", "end", "last"], ["h"]),
    ],
    "where": [
        *linear("z", "n"),
        node("Greater", ["x", "z"], ["b"]),
        node("Where", ["b", "n", "x"], ["h"]),
    ],
    "softmax-times": [
        *linear("z", "n"),
        node("Softmax", ["n"], ["s"], axis=0),
        node("Mul", ["s", "x"], ["h"]),
    ],
    "attention-context": [
        *linear("z", "q"),
        node("Transpose", ["q"], ["qt"]),
        node("MatMul", ["z", "qt"], ["scores"]),
        node("Softmax", ["scores"], ["p"]),
        node("MatMul", ["p", "x"], ["h"]),
    ],
    "dropout-in-training": [
        *linear("x", "n"),
        node("Dropout", ["n", "ratio", "training"], ["h"], seed=3),
    ],
    "foreign-Relu": [
        *linear("z", "n"),
        node("Mul", ["n", "x"], ["m"]),
        node("Relu", ["m"], ["h"]),
    ],
    "clip": [node("Clip", ["x", "low", "high"], ["h"])],
    "max-with-zero": [node("Max", ["x", "zero_eps"], ["h"])],
    "cast-through-float16": [
        node("Cast", ["x"], ["c"], to=FLOAT16),
        node("Cast", ["c"], ["h"], to=FLOAT),
    ],
}
MORE = {
    "one_row": np.array([1, ROWS * K]),
    "rows": np.array([ROWS, K]),
    "folded": np.array([ROWS // 2, 2, K]),
    "cube": np.array([ROWS, K, K]),
    "gamma2": np.ones(ROWS * K, np.float32),
    "beta2": np.zeros(ROWS * K, np.float32),
    "gamma3": np.ones((2, K), np.float32),
    "hundred": np.float32(100),
    "last": np.array([-1]),
    "begin": np.array([K // 2]),
    "end": np.array([K // 2 + K]),
    "ratio": np.float32(0.5),
    "training": np.array(True),
    "low": np.float32(-1),
    "high": np.float32(1),
    "expand": weight(K, K, spread=False, seed=31),
    "wide": np.ones((ROWS, K), np.float32),
    "from_rows": weight(ROWS, ROWS, spread=False, seed=32),
    "to_rows": np.eye(ROWS, dtype=np.float32),
}


def model_of(nodes: Nodes) -> onnx.ModelProto:
    x_rows = (
        ROWS * K if any(n.input[0] == "x" and n.input[1:2] == ["cube"] for n in nodes) else ROWS
    )
    names = {i for n in nodes for i in n.input} | {"w"}
    weights = {k: v for k, v in {**CONSTANTS, **MORE}.items() if k in names}
    return build(
        [*nodes, node("MatMul", ["h", "w"], ["y"], name="reader")],
        {"x": (FLOAT, (x_rows, K)), "z": (FLOAT, (ROWS, K))},
        ["y"],
        {**weights, "w": weight(K, N, spread=False, seed=24)},
    )


def feeds_of(model: onnx.ModelProto) -> dict[str, Array]:
    rows = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    return {"x": values(rows, K, seed=25), "z": values(ROWS, K, seed=26)}


def inject(feeds: dict[str, Array], row: int, bad: float, where: str) -> dict[str, Array]:
    x = feeds["x"].copy()
    if where == "all":
        x[row] = bad
    elif where == "two":
        x[row, [1, K - 2]] = [bad, -bad]
    else:
        x[row, {"first": 0, "middle": K // 2 + 1, "last": K - 1}[where]] = bad
    return {**feeds, "x": x}


def injections(feeds: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """The feeds as they are, and with what is not finite in row 2."""
    yield feeds
    for bad in (NAN, INF, -INF):
        for where in ("first", "middle", "last", "all", "two"):
            yield inject(feeds, 2, bad, where)


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_is_not_finite_reaches_the_output(tmp_path: Path, graph: str) -> None:
    """Rows that are NaN throughout in float are not finite in int8."""
    model = model_of(GRAPHS[graph])
    done = convert(model, tmp_path)
    assert done.outcome("reader").quantized
    theirs, ours = opened(model), opened(done.path)
    spoilt_rows = 0
    for i, feeds in enumerate(injections(feeds_of(model))):
        floats, y = theirs.run(None, feeds)[0], ours.run(None, feeds)[0]
        spoilt = np.isnan(floats).all(axis=-1)
        hidden = spoilt & np.isfinite(y).any(axis=-1)
        assert not hidden.any(), f"rows {np.flatnonzero(hidden)} came out finite"
        if i == 0:
            assert np.isfinite(y)[np.isfinite(floats)].all()
        spoilt_rows += int(spoilt.sum())
    assert spoilt_rows > 0, "the graph gives no row of NaN in float either: it shows nothing"


SPREADING = [
    "LayerNormalization",
    "LayerNormalization-Relu",
    "written-out",
    "written-out-gamma-beta",
    "linear-gelu",
    "linear-Gelu",
    "linear-Relu",
    "linear-bias-Relu",
    "linear-Sigmoid-Mul",
    "residual",
    "SkipLayerNormalization",
]


@pytest.mark.parametrize("graph", SPREADING)
def test_the_pass_is_saved_where_it_can_be(tmp_path: Path, graph: str) -> None:
    """The reader's rows cost no sum: at most the first layer's do."""
    done = convert(model_of(GRAPHS[graph]), tmp_path)
    assert "h_sum" not in {o for n in done.proto.graph.node for o in n.output}


def test_an_embedding_norm_with_NaN_in_gamma(tmp_path: Path) -> None:
    tables = {
        "word": weight(40, K, seed=1),
        "position": weight(8, K, seed=2),
        "bad_gamma": CONSTANTS["bad_gamma"],
        "beta": CONSTANTS["beta"],
        "w": weight(K, N, seed=3),
    }
    model = build(
        [
            node(
                "EmbedLayerNormalization",
                ["ids", "", "word", "position", "", "bad_gamma", "beta"],
                ["h", "n"],
                domain=MS,
            ),
            node("MatMul", ["h", "w"], ["y"], name="reader"),
        ],
        {"ids": (INT32, (2, 5))},
        ["y"],
        tables,
    )
    for options in ({}, {"nodes_to_exclude": ["h_node"]}):
        done = convert(model, tmp_path, **options)
        assert np.isnan(run(done.path, {"ids": np.ones((2, 5), np.int32)})[0]).all()


def test_a_lookup_is_not_taken_for_a_layer_per_row(tmp_path: Path) -> None:
    """Its rows are finite by themselves; what is added to them need not be."""
    model = build(
        [
            node("Gather", ["t", "i"], ["e"]),
            node("Add", ["e", "x"], ["h"]),
            node("MatMul", ["h", "w"], ["y"], name="reader"),
        ],
        {"i": (INT64, (ROWS,)), "x": (FLOAT, (ROWS, K))},
        ["y"],
        {"t": weight(200, K), "w": weight(K, N)},
    )
    x = values(ROWS, K)
    x[3, 7] = np.nan
    y = run(convert(model, tmp_path).path, {"i": np.arange(ROWS), "x": x})[0]
    assert np.isnan(y[3]).all()
    assert np.isfinite(np.delete(y, 3, 0)).all()


def test_an_operator_of_another_domain_is_not_known(tmp_path: Path) -> None:
    """A local function called Relu that puts NaN where it likes."""
    body = [
        helper.make_node("Constant", [], ["k"], value_float=0.5),
        helper.make_node("Pow", ["a", "k"], ["b"]),  # NaN for negative numbers
    ]
    function = helper.make_function(
        "mine", "Relu", ["a"], ["b"], body, [helper.make_opsetid("", 17)]
    )
    model = build(
        [
            node("MatMul", ["x", "square"], ["n"]),
            node("Relu", ["n"], ["h"], domain="mine"),
            node("MatMul", ["h", "w"], ["y"], name="reader"),
        ],
        {"x": (FLOAT, (ROWS, K))},
        ["y"],
        {"square": CONSTANTS["square"], "w": weight(K, N)},
        functions=[function],
        domains=["mine"],
    )
    feeds = {"x": values(ROWS, K)}
    assert np.isnan(run(model, feeds)[0]).all()
    assert np.isnan(run(convert(model, tmp_path).path, feeds)[0]).all()


@pytest.mark.parametrize("graph", ["x", "linear-Relu", "residual-only", "attention-context"])
def test_two_activations(tmp_path: Path, graph: str) -> None:
    """A NaN in the right operand, which has one scale for all of it, is not lost either."""
    nodes = GRAPHS[graph]
    names = {i for n in nodes for i in n.input}
    model = build(
        [*nodes, node("MatMul", ["z2", "h"], ["y"], name="reader")],
        {"x": (FLOAT, (ROWS, K)), "z": (FLOAT, (ROWS, K)), "z2": (FLOAT, (4, ROWS))},
        ["y"],
        {k: v for k, v in CONSTANTS.items() if k in names},
    )
    model.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, (ROWS, K)))
    done = convert(model, tmp_path, nodes_to_quantize=["reader"])
    feeds = {"x": values(ROWS, K), "z": values(ROWS, K, seed=4), "z2": values(4, ROWS, seed=5)}
    feeds["x"][2, 5] = np.nan
    expected = np.isnan(run(model, feeds)[0])
    assert expected.any()
    assert not np.isfinite(run(done.path, feeds)[0])[expected].any()
