"""com.microsoft.FusedMatMul with a constant right operand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import NothingQuantizedError
from tests.graphs import (
    EXACT,
    FLOAT,
    INT8,
    MS,
    assert_close,
    build,
    convert,
    node,
    per_row,
    run,
    sizes,
    values,
    weight,
)

M, K, N, B = 5, 44, 12, 3


def fused(x: Any, w: Any, **attributes: Any) -> Any:
    return build(
        [node("FusedMatMul", ["x", "w"], ["y"], domain=MS, **attributes)],
        {"x": (FLOAT, x)},
        ["y"],
        {"w": w},
    )


@pytest.mark.parametrize("alpha", [1.0, 0.125, -2.0], ids=lambda a: f"alpha={a}")
@pytest.mark.parametrize("trans_a", [0, 1], ids=["A", "A'"])
@pytest.mark.parametrize("trans_b", [0, 1], ids=["B", "B'"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [((M, K), (K, N)), ((B, M, K), (K, N)), ((B, M, K), (B, K, N)), ((2, B, M, K), (K, N))],
    ids=str,
)
def test_every_form(
    tmp_path: Path,
    alpha: float,
    trans_a: int,
    trans_b: int,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
) -> None:
    w, x = weight(*w_shape), values(*x_shape)
    fed = np.swapaxes(x, -1, -2).copy() if trans_a else x
    stored = np.swapaxes(w, -1, -2) if trans_b else w
    model = fused(fed.shape, stored, alpha=alpha, transA=trans_a, transB=trans_b)
    done = convert(model, tmp_path)
    assert done.outcome("y_node").quantized
    size = sizes(w) * abs(alpha)
    actual, expected = run(done.path, {"x": fed})[0], run(model, {"x": fed})[0]
    assert_close(actual, expected, INT8, size)
    by_rule = (alpha * per_row(done, x, {"x": fed})).astype(np.float32)
    assert_close(actual, by_rule, EXACT, size)


def test_vectors_are_not_transposed(tmp_path: Path) -> None:
    """ONNX Runtime ignores transA of a vector."""
    w, x = weight(K, N), values(K)
    model = fused((K,), w, transA=1)
    assert_close(run(model, {"x": x})[0], x @ w, EXACT, sizes(w))
    done = convert(model, tmp_path)
    assert_close(run(done.path, {"x": x})[0], x @ w, INT8, sizes(w))


@pytest.mark.parametrize("flag", ["transBatchA", "transBatchB"])
def test_moved_batch_axes_are_refused(tmp_path: Path, flag: str) -> None:
    model = fused((B, M, K), weight(B, K, N), **{flag: 1})
    with pytest.raises(NothingQuantizedError, match=flag):
        convert(model, tmp_path)


def test_transposed_input_of_unknown_rank_is_refused(tmp_path: Path) -> None:
    model = build(
        [
            node("Reshape", ["x", "s"], ["h"]),
            node("FusedMatMul", ["h", "w"], ["y"], domain=MS, transA=1),
        ],
        {"x": (FLOAT, (K, M)), "s": (7, ("r",))},
        ["y"],
        {"w": weight(K, N)},
    )
    with pytest.raises(NothingQuantizedError, match="rank"):
        convert(model, tmp_path)
