"""One row of a batch never changes another, and what is not finite stays so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from tests.graphs import (
    EXACT,
    INT8,
    Array,
    assert_close,
    convert,
    error,
    opened,
    run,
    sizes,
    text,
    values,
    weight,
)

N = 24
NARROW, NARROW_ODD, WIDE, WIDE_ODD = WIDTHS = (96, 33, 1024, 1501)
# Every operator that is linear over rows, from x [rows, K] to y [rows, N].
LAYERS = {
    "MatMul": "y = MatMul (x, w)",
    "Gemm": "y = Gemm <alpha = 0.5> (x, w, c)",
    "FusedMatMul": "y = com.microsoft.FusedMatMul <alpha = 2.0> (x, w)",
    "after-Relu": "h = Relu (x) y = MatMul (h, w)",
    "after-Gelu": "h = com.microsoft.Gelu (x) y = MatMul (h, w)",
}
Run = Callable[[Array], Array]


def runs(body: str, k: int, folder: Path, c: Array | None = None) -> tuple[Run, Run]:
    """What a layer of width `k` computes in float, and converted."""
    weights = {"w": weight(k, N), "c": values(N, seed=8) if c is None else c}
    model = text(body, f"float[rows, {k}] x", weights=weights)

    def of(session: ort.InferenceSession) -> Run:
        return lambda x: session.run(None, {"x": x})[0]

    return of(opened(model)), of(opened(convert(model, folder).path))


EACH = list(itertools.product(LAYERS, WIDTHS))
# In the others a bias or a factor is of normal size, whatever the rows are.
OF_ROWS_ALONE = [each for each in EACH if each[0] not in ("Gemm", "FusedMatMul")]


@pytest.fixture(
    scope="module",
    params=EACH,
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def layer(request: Any, tmp_path_factory: Any) -> Iterator[tuple[str, int, Run, Run]]:
    """Each layer at each width: its name, width, and runs in float and in int8."""
    name, k = request.param
    yield name, k, *runs(LAYERS[name], k, tmp_path_factory.mktemp("layer"))


def test_a_row_does_not_touch_the_others(layer: tuple[str, int, Run, Run]) -> None:
    _, k, _, y = layer
    before = y(values(9, k))
    for factor in (100, 0, 1e30):
        x = values(9, k)
        x[4] *= np.float32(factor)
        after = y(x)
        assert np.array_equal(np.delete(before, 4, 0), np.delete(after, 4, 0))
        assert not np.array_equal(before[4], after[4])
    for i, row in enumerate(values(9, k)):
        assert np.array_equal(y(row[None])[0], before[i]), "alone it has other bits"


BAD: dict[str, tuple[Any, Any]] = {
    "one-nan": (48, np.nan),
    "first-nan": (0, np.nan),
    "last-nan": (-1, np.nan),
    "all-nan": (slice(None), np.nan),
    "one-inf": (11, np.inf),
    "one-minus-inf": (-1, -np.inf),
    "both-inf": (slice(2), [np.inf, -np.inf]),
    "nan-and-inf": (slice(None), "nan first"),
}


def test_what_is_not_finite_stays_so(layer: tuple[str, int, Run, Run]) -> None:
    """Every number of the row, and none of another row."""
    _, k, floats, y = layer
    before = y(values(9, k))
    for name, (where, bad) in BAD.items():
        x = values(9, k)
        x[3, where % k if isinstance(where, int) else where] = (
            [np.nan, np.nan, *[np.inf] * (k - 2)] if bad == "nan first" else bad
        )
        after = y(x)
        assert np.array_equal(np.delete(before, 3, 0), np.delete(after, 3, 0)), name
        if not np.isfinite(floats(x)[3]).any():  # Relu and Gelu turn -inf into 0
            assert not np.isfinite(after[3]).any(), name


@pytest.mark.parametrize("layer", OF_ROWS_ALONE, indirect=True, ids=lambda p: f"{p[0]}-{p[1]}")
def test_rows_of_any_size(layer: tuple[str, int, Run, Run]) -> None:
    """From denormal numbers to the edge of float32, beside rows of normal size."""
    name, k, floats, y = layer
    size = sizes(weight(k, N))
    for scale in (1e-42, 1e-38, 1e-30, 1e-20, 1e20, 1e30, 1e34):
        x = values(9, k)
        x[2] *= np.float32(scale)
        found, wanted = y(x), floats(x)
        assert np.isfinite(found).all()
        assert_close(np.delete(found, 2, 0), np.delete(wanted, 2, 0), INT8, size)
        if scale >= 1e-30 and name == "MatMul":
            assert error(found[2] / size, wanted[2] / size) <= 1.5 * INT8
        else:  # below, a step is no normal number, and then what it divides is not finite
            share = 1.5 * INT8 if scale >= 1e-38 else 2
            assert np.abs(found[2] - wanted[2]).max() <= max(1e-3 * scale, share * scale * k)


@pytest.mark.parametrize("k", WIDTHS)
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
def test_a_row_of_zeros_gives_the_bias(tmp_path: Path, k: int, bias: bool) -> None:
    c = values(N, seed=8) if bias else np.zeros(N, np.float32)
    x = values(9, k)
    x[[0, 5]] = 0.0
    x[5, ::2] = -0.0
    y = runs("y = Gemm (x, w, c)", k, tmp_path, c)[1](x)
    assert np.array_equal(y[0], c)
    assert np.array_equal(y[5], c)


@pytest.mark.parametrize("k", [NARROW, WIDE_ODD])
def test_one_large_number_in_a_row(tmp_path: Path, k: int) -> None:
    """The row's own step grows with it, as DESIGN's formula says; the other rows keep theirs."""
    w, x = weight(k, N), values(9, k)
    x[1, 7] = 1000.0
    floats, y = (each(x) for each in runs(LAYERS["MatMul"], k, tmp_path))
    half_step_of_x, half_step_of_w = 1000.0 / 254, np.abs(w).max(axis=0) / 254
    bound = half_step_of_x * np.abs(w).sum(axis=0) + half_step_of_w * np.abs(x[1]).sum()
    assert (np.abs(y[1] - floats[1]) <= bound).all()
    assert_close(np.delete(y, 1, 0), np.delete(floats, 1, 0), INT8, sizes(w))


def test_float16_rows(tmp_path: Path) -> None:
    w = weight(64, N, spread=False).astype(np.float16)
    model = text("y = MatMul (x, w)", "float16[rows, 64] x", "float16[] y", {"w": w})
    done = opened(convert(model, tmp_path).path)
    x = values(6, 64).astype(np.float16)
    before = done.run(None, {"x": x})[0]
    x[2, 5] = np.nan
    x[4] = 0
    after = done.run(None, {"x": x})[0]
    assert np.array_equal(np.delete(before, [2, 4], 0), np.delete(after, [2, 4], 0))
    assert np.isnan(after[2]).all()
    assert not after[4].any()


def test_rows_are_the_last_axis_whatever_came_before(tmp_path: Path) -> None:
    """Rows of a transposed activation are its columns: each has its own scale."""
    w = weight(40, N)
    body = "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (t, w)"
    model = text(body, "float[2, 40, 6] x", weights={"w": w})
    x = values(2, 40, 6) * np.geomspace(1e-3, 1e3, 6).astype(np.float32)
    y, floats = run(convert(model, tmp_path).path, {"x": x})[0], run(model, {"x": x})[0]
    for i in range(6):
        assert_close(y[:, i], floats[:, i], INT8, sizes(w))
    assert error(y, floats) > EXACT
