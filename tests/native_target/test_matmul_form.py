"""Products of two activations in the native target: only when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.recipe import Kind, Recipe, Rule, Scheme
from tests.graphs import FLOAT, INT8, MS, Array, assert_close, build, node, values
from tests.graphs import run as run_float
from tests.native_target.forms import attributes, convert, ours, run
from tests.onnx.references.linear import (
    reference_of_activations as reference,
)

ASKED = {"recipe": Recipe("products", Scheme(), (Rule(Scheme(), kind=Kind.ACTIVATION_MATMUL),))}


def product(a: Array, b: Array, nodes: list[onnx.NodeProto] | None = None, opset: int = 17) -> Any:
    return build(
        nodes or [node("MatMul", ["a", "b"], ["y"])],
        {"a": (FLOAT, [None] * a.ndim), "b": (FLOAT, [None] * b.ndim)},
        ["y"],
        opset=opset,
        domains=(),
    )


def test_it_computes_its_reference(tmp_path: Path) -> None:
    a, b = values(2, 3, 9, 64), values(3, 64, 21, seed=5) * np.geomspace(0.1, 10, 21)
    b = b.astype(np.float32)
    done = convert(product(a, b), tmp_path, **ASKED)
    assert done.ops == ["MatMul"] and len(ours(done)) == 1
    (y,) = run(done, {"a": a, "b": b})
    size = np.linalg.norm(b, axis=-2, keepdims=True)
    # Where float32 and float64 round to different integers, one step of one input.
    assert_close(y, reference(a, b).astype(np.float32), 1e-3, size)
    assert_close(y, np.matmul(a, b), INT8, size)


def test_nan_reaches_its_row_and_column_as_the_reference_says(tmp_path: Path) -> None:
    a, b = values(5, 16), values(16, 7)
    a[1, 3], b[0, 4] = np.nan, np.inf
    done = convert(product(a, b), tmp_path, **ASKED)
    (y,) = run(done, {"a": a, "b": b})
    assert np.array_equal(np.isnan(y), np.isnan(reference(a, b)))
    assert np.isnan(y[1]).all() and np.isnan(y[:, 4]).all() and np.isnan(y).sum() == 11


def test_it_is_off_by_default(tmp_path: Path) -> None:
    done = convert(product(values(4, 4), values(4, 4)), tmp_path, allow_nothing=True)
    assert not ours(done)
    assert "a product of two activations" in done.report.layers[0].reason
    option = {"MatMulConstBOnly": False}
    assert (
        len(ours(convert(product(values(4, 4), values(4, 4)), tmp_path, extra_options=option))) == 1
    )


TRANSPOSES = {
    "swap": ([0, 1, 3, 2], (2, 3, 20, 64), 1, ["MatMul"]),
    "heads": ([0, 2, 3, 1], (2, 20, 3, 64), 1, ["Transpose", "MatMul"]),
    "others": ([0, 2, 1, 3], (2, 64, 3, 20), 0, ["Transpose", "MatMul"]),
}


@pytest.mark.parametrize("case", TRANSPOSES)
def test_a_transpose_of_the_last_axes_is_taken_in(tmp_path: Path, case: str) -> None:
    perm, shape, transposed, ops = TRANSPOSES[case]
    a, b = values(2, 3, 9, 64), values(*shape, seed=5)
    nodes = [node("Transpose", ["b"], ["t"], perm=perm), node("MatMul", ["a", "t"], ["y"])]
    model = product(a, b, nodes)
    done = convert(model, tmp_path, **ASKED)
    assert done.ops == ops
    assert attributes(ours(done)[0])["transpose_b"] == transposed
    feeds = {"a": a, "b": b}
    assert_close(run(done, feeds)[0], run_float(model, feeds)[0], INT8)


def test_a_transpose_that_others_read_stays(tmp_path: Path) -> None:
    a, b = values(9, 64), values(20, 64, seed=5)
    model = build(
        [node("Transpose", ["b"], ["t"], perm=[1, 0]), node("MatMul", ["a", "t"], ["y"])],
        {"a": (FLOAT, [None, 64]), "b": (FLOAT, [None, 64])},
        ["y", "t"],
    )
    done = convert(model, tmp_path, **ASKED)
    y, t = run(done, {"a": a, "b": b})
    assert np.array_equal(t, b.T)
    assert_close(y, a @ b.T, INT8)


def test_gemm_and_fused_matmul(tmp_path: Path) -> None:
    a, b = values(64, 9), values(20, 64, seed=5)
    for op, options in (
        ("Gemm", {"transA": 1, "transB": 1, "alpha": 0.5}),
        ("FusedMatMul", {"transA": 1, "transB": 1, "alpha": 0.5, "domain": MS}),
    ):
        model = product(a, b, [node(op, ["a", "b"], ["y"], **options)])
        done = convert(model, tmp_path, **ASKED)
        assert [n.op_type for n in ours(done)] == ["MatMul"]
        feeds = {"a": a, "b": b}
        assert_close(run(done, feeds)[0], run_float(model, feeds)[0], INT8)


def test_gemm_with_a_bias(tmp_path: Path) -> None:
    a, b = values(9, 64), values(64, 20, seed=5)
    model = build(
        [node("Gemm", ["a", "b", "c"], ["y"], beta=2.0)],
        {"a": (FLOAT, [None, 64]), "b": (FLOAT, [64, 20])},
        ["y"],
        {"c": values(20, seed=8)},
    )
    done = convert(model, tmp_path, **ASKED)
    assert_close(run(done, {"a": a, "b": b})[0], run_float(model, {"a": a, "b": b})[0], INT8)


def refused(tmp_path: Path, model: Any) -> str:
    done = convert(model, tmp_path, allow_nothing=True, **ASKED)
    assert not ours(done)
    return str(done.report.layers[0].reason)


def test_what_the_operator_cannot_hold_stays_float(tmp_path: Path) -> None:
    vector = product(values(4), values(4, 4))
    assert refused(tmp_path, vector) == "a product of two activations with a vector"
    turned = [node("FusedMatMul", ["a", "b"], ["y"], domain=MS, transA=1)]
    unknown = build(turned, {"a": (FLOAT, None), "b": (FLOAT, None)}, ["y"])
    assert "whose rank the model does not state" in refused(tmp_path, unknown)


def test_operands_whose_rank_nobody_states(tmp_path: Path) -> None:
    a, b = values(2, 9, 64), values(64, 20, seed=5)
    model = build(
        [node("MatMul", ["a", "b"], ["y"])], {"a": (FLOAT, None), "b": (FLOAT, None)}, ["y"]
    )
    done = convert(model, tmp_path, **ASKED)
    assert_close(run(done, {"a": a, "b": b})[0], np.matmul(a, b), INT8)
