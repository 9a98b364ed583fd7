"""Gemm with any alpha, beta, transA, transB and C."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.graphs import (
    EXACT,
    INT8,
    Array,
    assert_close,
    assert_near_float,
    convert,
    error,
    per_row,
    run,
    sizes,
    text,
    values,
    weight,
)

M, K, N = 6, 40, 24


def gemm(w: Array, c: Array | None, stated: str = "", opset: int = 17) -> onnx.ModelProto:
    """x, [M, K] unless `stated` turns it -> Gemm -> y."""
    k = w.shape["transB = 1" in stated]
    x = f"float[{k}, {M}] x" if "transA = 1" in stated else f"float[{M}, {k}] x"
    body = f"[gemm] y = Gemm <{stated}> (x, w{'' if c is None else ', c'})"
    return text(body.replace(" <>", ""), x, weights={"w": w, "c": c}, opset=opset)


# C as ONNX has it, broadcast to [M, N]; alpha and beta; transA and transB.
FORMS: list[tuple[tuple[int, ...] | None, float, float, int, int]] = [
    (None, 1.0, 1.0, 0, 0),
    (None, -3.0, 1.0, 1, 0),
    (None, 0.25, -0.5, 0, 1),
    ((), 0.25, -0.5, 0, 0),
    ((), 1.0, 1.0, 1, 1),
    ((1,), -3.0, 1.0, 0, 1),
    ((1,), 1.0, 0.0, 1, 0),
    ((N,), 1.0, 1.0, 0, 1),
    ((N,), 0.25, -0.5, 1, 0),
    ((1, N), -3.0, 1.0, 0, 0),
    ((1, N), 1.0, 0.0, 0, 1),
    ((M, 1), 0.25, -0.5, 1, 1),
    ((M, 1), 1.0, 1.0, 0, 0),
    ((M, N), -3.0, 1.0, 1, 0),
    ((M, N), 1.0, 0.0, 0, 0),
    ((M, N), 0.25, -0.5, 0, 1),
]


@pytest.mark.parametrize(("c_shape", "alpha", "beta", "trans_a", "trans_b"), FORMS)
def test_every_form(
    tmp_path: Path,
    c_shape: tuple[int, ...] | None,
    alpha: float,
    beta: float,
    trans_a: int,
    trans_b: int,
) -> None:
    w, x = weight(K, N), values(M, K)
    c = None if c_shape is None else np.asarray(5.0 * values(*c_shape, seed=7), np.float32)
    stated = f"alpha = {alpha}, beta = {beta}, transA = {trans_a}, transB = {trans_b}"
    model = gemm(w.T if trans_b else w, c, stated)
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
    body, inputs = f"y = Gemm <beta = {beta}> (x, w, c)", f"float[{M}, {K}] x, float[{M}, {N}] c"
    model = text(body, inputs, weights={"w": weight(K, N, spread=False)})
    feeds = {"x": values(M, K), "c": values(M, N, seed=8)}
    assert_near_float(convert(model, tmp_path), model, feeds, INT8)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 26])
def test_opsets(tmp_path: Path, opset: int) -> None:
    """Up to opset 10 a Gemm always has a C."""
    w, c = weight(N, K, axis=0), values(N)
    done = convert(gemm(w, c, "transB = 1", opset), tmp_path)
    assert done.report.opset == max(opset, 10)
    x = values(M, K)
    assert_close(run(done.path, {"x": x})[0], x @ w.T + c, INT8, sizes(w.T))


def test_alpha_costs_no_node_and_long_rows_take_it(tmp_path: Path) -> None:
    w = weight(1200, N)
    done = convert(gemm(w, None, "alpha = 0.125"), tmp_path)
    assert len(done.ops) == len(convert(gemm(w, None), tmp_path).ops)
    x = values(M, 1200)
    assert_close(run(done.path, {"x": x})[0], 0.125 * (x @ w), INT8, 0.125 * sizes(w))


def test_beta_of_a_shared_bias_is_its_own(tmp_path: Path) -> None:
    """Two layers read one C with different beta, and a third node reads it as it is, in float."""
    w, c = weight(K, N, spread=False), values(N)
    body = """a = Gemm <beta = 2.0> (x, w, c)
        b = Gemm <beta = -1.0> (x, w, c)
        d = Add (b, c)"""
    model = text(body, f"float[{M}, {K}] x", "float[] a, float[] d", {"w": w, "c": c})
    done = convert(model, tmp_path, cpu="any")
    x = values(M, K)
    a, d = run(done.path, {"x": x})
    assert_close(a, x @ w + 2 * c, INT8)
    assert_close(d, x @ w, INT8)
    stored = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    assert np.array_equal(stored["c"], c)
