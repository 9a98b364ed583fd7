"""com.microsoft.FusedMatMul with a constant right operand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.errors import NothingQuantizedError
from tests.graphs import (
    EXACT,
    INT8,
    Array,
    assert_close,
    convert,
    per_row,
    run,
    sizes,
    text,
    values,
    weight,
)

M, K, N, B = 5, 44, 24, 3
FUSED = "com.microsoft.FusedMatMul"


def fused(x: tuple[int, ...], w: Array, stated: str) -> onnx.ModelProto:
    body = f"[layer] y = {FUSED} <{stated}> (x, w)"
    return text(body, f"float[{', '.join(map(str, x))}] x", weights={"w": w})


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "alpha", "trans_a", "trans_b"),
    [
        ((M, K), (K, N), 1.0, 0, 0),
        ((M, K), (K, N), -2.0, 1, 1),
        ((B, M, K), (K, N), 0.125, 1, 0),
        ((B, M, K), (K, N), 1.0, 0, 1),
        ((B, M, K), (B, K, N), -2.0, 0, 1),
        ((B, M, K), (B, K, N), 0.125, 1, 1),
        ((2, B, M, K), (K, N), 1.0, 1, 0),
        ((2, B, M, K), (K, N), 0.125, 0, 0),
    ],
)
def test_every_form(
    tmp_path: Path,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    alpha: float,
    trans_a: int,
    trans_b: int,
) -> None:
    w, x = weight(*w_shape), values(*x_shape)
    fed = np.swapaxes(x, -1, -2).copy() if trans_a else x
    stored = np.swapaxes(w, -1, -2) if trans_b else w
    model = fused(fed.shape, stored, f"alpha = {alpha}, transA = {trans_a}, transB = {trans_b}")
    done = convert(model, tmp_path)
    assert done.outcome("layer").quantized
    size = sizes(w) * abs(alpha)
    actual, expected = run(done.path, {"x": fed})[0], run(model, {"x": fed})[0]
    assert_close(actual, expected, INT8, size)
    by_rule = (alpha * per_row(done, x, {"x": fed})).astype(np.float32)
    assert_close(actual, by_rule, EXACT, size)


def test_vectors_are_not_transposed(tmp_path: Path) -> None:
    """ONNX Runtime ignores transA of a vector."""
    w, x = weight(K, N), values(K)
    model = fused((K,), w, "transA = 1")
    assert_close(run(model, {"x": x})[0], x @ w, EXACT, sizes(w))
    done = convert(model, tmp_path)
    assert_close(run(done.path, {"x": x})[0], x @ w, INT8, sizes(w))


@pytest.mark.parametrize("flag", ["transBatchA", "transBatchB"])
def test_moved_batch_axes_are_refused(tmp_path: Path, flag: str) -> None:
    with pytest.raises(NothingQuantizedError, match=flag):
        convert(fused((B, M, K), weight(B, K, N), f"{flag} = 1"), tmp_path)


def test_transposed_input_of_unknown_rank_is_refused(tmp_path: Path) -> None:
    body = f"h = Reshape (x, s) y = {FUSED} <transA = 1> (h, w)"
    model = text(body, f"float[{K}, {M}] x, int64[r] s", weights={"w": weight(K, N)})
    with pytest.raises(NothingQuantizedError, match="rank"):
        convert(model, tmp_path)
