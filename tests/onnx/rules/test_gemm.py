"""Gemm with any alpha, beta, transA, transB and C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.graphs import (
    EXACT,
    FLOAT,
    INT8,
    Array,
    assert_close,
    build,
    convert,
    error,
    node,
    per_row,
    run,
    sizes,
    values,
    weight,
)

M, K, N = 6, 40, 24

# As ONNX has it: C is broadcast to [M, N].
C_SHAPES: dict[str, tuple[int, ...] | None] = {
    "no-C": None,
    "C[]": (),
    "C[1]": (1,),
    "C[N]": (N,),
    "C[1,N]": (1, N),
    "C[M,1]": (M, 1),
    "C[M,N]": (M, N),
}


def gemm(
    w: Array, c: Array | None, x: tuple[int, ...] = (M, K), opset: int = 17, **attributes: Any
) -> Any:
    names = ["x", "w"] + ([] if c is None else ["c"])
    weights = {"w": w} if c is None else {"w": w, "c": c}
    return build(
        [node("Gemm", names, ["y"], **attributes)], {"x": (FLOAT, x)}, ["y"], weights, opset=opset
    )


@pytest.mark.parametrize("c_shape", C_SHAPES.values(), ids=C_SHAPES.keys())
@pytest.mark.parametrize("trans_b", [0, 1], ids=["B", "B'"])
@pytest.mark.parametrize("trans_a", [0, 1], ids=["A", "A'"])
@pytest.mark.parametrize(
    ("alpha", "beta"), [(1.0, 1.0), (0.25, -0.5), (-3.0, 1.0), (1.0, 0.0)], ids=str
)
def test_every_form(
    tmp_path: Path,
    alpha: float,
    beta: float,
    trans_a: int,
    trans_b: int,
    c_shape: tuple[int, ...] | None,
) -> None:
    w = weight(K, N)
    c = None if c_shape is None else 5.0 * values(*c_shape, seed=7)
    x = values(M, K)
    model = gemm(
        w.T if trans_b else w,
        c,
        (K, M) if trans_a else (M, K),
        alpha=alpha,
        beta=beta,
        transA=trans_a,
        transB=trans_b,
    )
    feeds = {"x": x.T.copy() if trans_a else x}
    done = convert(model, tmp_path)
    actual = run(done.path, feeds)[0]
    added = 0.0 if c is None else beta * c.astype(np.float64)
    # The product and its size, so that a large C hides nothing.
    product = actual.astype(np.float64) - added
    exact = alpha * (x.astype(np.float64) @ w.astype(np.float64))
    size = sizes(w) * abs(alpha)
    assert error(product / size, exact / size) <= INT8
    assert_close(run(model, feeds)[0].astype(np.float64), exact + added, EXACT)
    by_rule = alpha * per_row(done, x, feeds) + added
    rounding = EXACT * (1.0 + float(np.abs(added).max()) / float(np.abs(size).min()))
    assert error(actual / size, by_rule / size) <= rounding


@pytest.mark.parametrize("beta", [1.0, 0.5, 0.0], ids=lambda b: f"beta={b}")
def test_c_may_be_an_activation(tmp_path: Path, beta: float) -> None:
    model = build(
        [node("Gemm", ["x", "w", "c"], ["y"], beta=beta)],
        {"x": (FLOAT, (M, K)), "c": (FLOAT, (M, N))},
        ["y"],
        {"w": weight(K, N, spread=False)},
    )
    feeds = {"x": values(M, K), "c": values(M, N, seed=8)}
    done = convert(model, tmp_path)
    assert_close(run(done.path, feeds)[0], run(model, feeds)[0], INT8)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 26])
def test_opsets(tmp_path: Path, opset: int) -> None:
    """Up to opset 10 a Gemm always has a C."""
    w, c = weight(N, K, axis=0), values(N)
    model = gemm(w, c, opset=opset, transB=1)
    feeds = {"x": values(M, K)}
    done = convert(model, tmp_path)
    assert done.report.opset == max(opset, 10)
    expected = feeds["x"] @ w.T + c
    assert_close(run(done.path, feeds)[0], expected, INT8, sizes(w.T))


def test_alpha_costs_no_node_and_long_rows_take_it(tmp_path: Path) -> None:
    w = weight(1200, N)
    done = convert(gemm(w, None, (M, 1200), alpha=0.125), tmp_path)
    plain = convert(gemm(w, None, (M, 1200)), tmp_path)
    assert len(done.ops) == len(plain.ops)
    x = values(M, 1200)
    assert_close(run(done.path, {"x": x})[0], 0.125 * (x @ w), INT8, 0.125 * sizes(w))


def test_beta_of_a_shared_bias_is_its_own(tmp_path: Path) -> None:
    """Two layers read one C with different beta, and a third node reads it as it is."""
    w, c = weight(K, N, spread=False), values(N)
    model = build(
        [
            node("Gemm", ["x", "w", "c"], ["a"], beta=2.0),
            node("Gemm", ["x", "w", "c"], ["b"], beta=-1.0),
            node("Add", ["b", "c"], ["d"]),
        ],
        {"x": (FLOAT, (M, K))},
        ["a", "d"],
        {"w": w, "c": c},
    )
    x = values(M, K)
    a, d = run(convert(model, tmp_path).path, {"x": x})
    assert_close(a, x @ w + 2 * c, INT8)
    assert_close(d, x @ w, INT8)


def test_bias_stays_float32(tmp_path: Path) -> None:
    c = values(N)
    done = convert(gemm(weight(K, N), c), tmp_path)
    stored = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    assert np.array_equal(stored["c"], c)
