"""One row of a batch never changes another, and what is not finite stays so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphs import (
    EXACT,
    FLOAT,
    FLOAT16,
    INT8,
    MS,
    Array,
    assert_close,
    build,
    convert,
    error,
    node,
    opened,
    run,
    sizes,
    values,
    weight,
)

N = 24
WIDTHS = {"narrow": 96, "narrow-odd": 33, "wide": 1024, "wide-odd": 1501}
widths = pytest.mark.parametrize("k", WIDTHS.values(), ids=WIDTHS.keys())

# Every operator that is linear over rows, as nodes from x [rows, K] to y [rows, N].
LAYERS: dict[str, Any] = {
    "MatMul": lambda: [node("MatMul", ["x", "w"], ["y"])],
    "Gemm": lambda: [node("Gemm", ["x", "w", "c"], ["y"], alpha=0.5)],
    "FusedMatMul": lambda: [node("FusedMatMul", ["x", "w"], ["y"], domain=MS, alpha=2.0)],
    "after-Relu": lambda: [node("Relu", ["x"], ["h"]), node("MatMul", ["h", "w"], ["y"])],
    "after-Gelu": lambda: [
        node("Gelu", ["x"], ["h"], domain=MS),
        node("MatMul", ["h", "w"], ["y"]),
    ],
}
layers = pytest.mark.parametrize("layer", LAYERS)


def model_of(layer: str, k: int) -> Any:
    weights = {"w": weight(k, N)}
    if layer == "Gemm":
        weights["c"] = values(N, seed=8)
    return build(LAYERS[layer](), {"x": (FLOAT, ("rows", k))}, ["y"], weights)


def batch(k: int, rows: int = 9) -> Array:
    return values(rows, k)


@layers
@widths
@pytest.mark.parametrize(
    "change", [lambda r: 100 * r, lambda r: 0 * r, lambda r: 1e30 * r], ids=["100x", "0", "1e30"]
)
def test_a_row_does_not_touch_the_others(tmp_path: Path, layer: str, k: int, change: Any) -> None:
    done = convert(model_of(layer, k), tmp_path)
    x = batch(k)
    before = run(done.path, {"x": x})[0]
    x[4] = change(x[4])
    after = run(done.path, {"x": x})[0]
    others = np.arange(len(x)) != 4
    assert np.array_equal(before[others], after[others])
    assert not np.array_equal(before[4], after[4])


@layers
@widths
def test_a_row_alone_gives_the_same_bits(tmp_path: Path, layer: str, k: int) -> None:
    done = convert(model_of(layer, k), tmp_path)
    x = batch(k)
    session = opened(done.path)
    together = session.run(None, {"x": x})[0]
    for i in range(len(x)):
        assert np.array_equal(session.run(None, {"x": x[i : i + 1]})[0][0], together[i])


BAD = {
    "one-nan": lambda r: np.where(np.arange(r.size) == r.size // 2, np.nan, r),
    "first-nan": lambda r: np.where(np.arange(r.size) == 0, np.nan, r),
    "last-nan": lambda r: np.where(np.arange(r.size) == r.size - 1, np.nan, r),
    "all-nan": lambda r: np.full_like(r, np.nan),
    "one-inf": lambda r: np.where(np.arange(r.size) == r.size // 3, np.inf, r),
    "one-minus-inf": lambda r: np.where(np.arange(r.size) == r.size - 1, -np.inf, r),
    "both-inf": lambda r: np.where(
        np.arange(r.size) < 2, np.array([np.inf, -np.inf])[np.arange(r.size) % 2], r
    ),
    "nan-and-inf": lambda r: np.where(np.arange(r.size) < 2, [np.nan] * r.size, np.inf),
}


@pytest.mark.sweep(7)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@widths
@layers
def test_what_is_not_finite_stays_so(tmp_path: Path, layer: str, k: int, bad: Any) -> None:
    """Every number of the row, and none of another row."""
    model = model_of(layer, k)
    done = convert(model, tmp_path)
    x = batch(k)
    before = run(done.path, {"x": x})[0]
    x[3] = bad(x[3])
    after = run(done.path, {"x": x})[0]
    floats = run(model, {"x": x})[0]
    assert np.array_equal(np.delete(before, 3, 0), np.delete(after, 3, 0))
    if not np.isfinite(floats[3]).any():  # Relu and Gelu turn -inf into 0
        assert not np.isfinite(after[3]).any()


@widths
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
def test_a_row_of_zeros_gives_the_bias(tmp_path: Path, k: int, bias: bool) -> None:
    c = values(N, seed=8) if bias else np.zeros(N, np.float32)
    model = build(
        [node("Gemm", ["x", "w", "c"], ["y"])],
        {"x": (FLOAT, ("rows", k))},
        ["y"],
        {"w": weight(k, N), "c": c},
    )
    x = batch(k)
    x[[0, 5]] = 0.0
    x[5, ::2] = -0.0
    y = run(convert(model, tmp_path).path, {"x": x})[0]
    assert np.array_equal(y[0], c)
    assert np.array_equal(y[5], c)


@widths
@pytest.mark.parametrize("layer", ["MatMul", "after-Relu", "after-Gelu"])
@pytest.mark.parametrize("scale", [1e-42, 1e-38, 1e-30, 1e-20, 1e20, 1e30, 1e34], ids=str)
def test_rows_of_any_size(tmp_path: Path, k: int, layer: str, scale: float) -> None:
    """From denormal numbers to the edge of float32, beside rows of normal size."""
    w = weight(k, N)
    model = model_of(layer, k)
    done = convert(model, tmp_path)
    x = batch(k)
    x[2] *= np.float32(scale)
    y, floats = run(done.path, {"x": x})[0], run(model, {"x": x})[0]
    assert np.isfinite(y).all()
    assert_close(np.delete(y, 2, 0), np.delete(floats, 2, 0), INT8, sizes(w))
    if scale >= 1e-30 and layer == "MatMul":
        assert error(y[2] / sizes(w), floats[2] / sizes(w)) <= 1.5 * INT8
    else:  # below, a step is no longer a normal number, and then what it divides is not finite
        share = 1.5 * INT8 if scale >= 1e-38 else 2
        assert float(np.abs(y[2] - floats[2]).max()) <= max(1e-3 * scale, share * scale * k)


@pytest.mark.parametrize("k", [96, 1501], ids=["narrow", "wide"])
def test_one_large_number_in_a_row(tmp_path: Path, k: int) -> None:
    """The row's own step grows with it, as DESIGN's formula says; the other rows keep theirs."""
    w, model = weight(k, N), model_of("MatMul", k)
    done = convert(model, tmp_path)
    x = batch(k)
    x[1, 7] = 1000.0
    y, floats = run(done.path, {"x": x})[0], run(model, {"x": x})[0]
    half_step_of_x, half_step_of_w = 1000.0 / 254, np.abs(w).max(axis=0) / 254
    bound = half_step_of_x * np.abs(w).sum(axis=0) + half_step_of_w * np.abs(x[1]).sum()
    assert (np.abs(y[1] - floats[1]) <= bound).all()
    assert_close(np.delete(y, 1, 0), np.delete(floats, 1, 0), INT8, sizes(w))


def test_float16_rows(tmp_path: Path) -> None:
    model = build(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": (FLOAT16, ("rows", 64))},
        {"y": (FLOAT16, None)},
        {"w": weight(64, N, spread=False).astype(np.float16)},
    )
    done = convert(model, tmp_path)
    x = values(6, 64).astype(np.float16)
    before = run(done.path, {"x": x})[0]
    x[2, 5] = np.nan
    x[4] = 0
    after = run(done.path, {"x": x})[0]
    assert np.array_equal(np.delete(before, [2, 4], 0), np.delete(after, [2, 4], 0))
    assert np.isnan(after[2]).all()
    assert not after[4].any()


def test_layers_that_read_one_activation_quantize_it_once(tmp_path: Path) -> None:
    model = build(
        [node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(3)],
        {"x": (FLOAT, (4, 96))},
        [f"y{i}" for i in range(3)],
        {f"w{i}": weight(96, N, seed=i) for i in range(3)},
    )
    done = convert(model, tmp_path)
    assert done.ops.count("QuantizeLinear") == 1
    assert done.ops.count("MatMulIntegerToFloat") == 3
    x = values(4, 96)
    for y, floats, i in zip(run(done.path, {"x": x}), run(model, {"x": x}), range(3), strict=True):
        assert_close(y, floats, INT8, sizes(weight(96, N, seed=i)))


def test_rows_are_the_last_axis_whatever_came_before(tmp_path: Path) -> None:
    """Rows of a transposed activation are its columns: each has its own scale."""
    w = weight(40, N)
    model = build(
        [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["t", "w"], ["y"])],
        {"x": (FLOAT, (2, 40, 6))},
        ["y"],
        {"w": w},
    )
    x = values(2, 40, 6) * np.geomspace(1e-3, 1e3, 6).astype(np.float32)
    y, floats = run(convert(model, tmp_path).path, {"x": x})[0], run(model, {"x": x})[0]
    for i in range(6):
        assert_close(y[:, i], floats[:, i], INT8, sizes(w))
    assert error(y, floats) > EXACT
