"""Layer normalization of rows: against its float64 statement, and the same bits on every table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core.layer_norm import layer_norm
from tests.core.statement import assert_same_bits
from tests.core.tables import on_every_table
from tests.core.test_block_kernels import norm_stated

COLUMNS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 100, 384, 1024, 1025]


def operands(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r = np.random.default_rng(columns)
    x = r.standard_normal((rows, columns)) * 10.0 ** r.integers(-3, 4, (rows, 1)) + 3
    return tuple(a.astype(np.float32) for a in (x, *r.standard_normal((2, columns))))  # type: ignore[return-value]


@pytest.mark.parametrize("columns", COLUMNS)
def test_every_table_computes_what_is_stated(columns: int) -> None:
    x, weight, bias = operands(67, columns)
    found = on_every_table(lambda threads: layer_norm(x, weight, bias, threads=threads))
    assert_same_bits(layer_norm(x[9:10], weight, bias), found[9:10])
    # A row's mean is exact to some roundings of its largest value, which its deviation may be far
    # below.
    slack = np.abs(x).max(-1, keepdims=True) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    error = np.abs(found - norm_stated("layer", x, weight, bias))
    assert (error <= 1e-6 * (1 + slack) * (1 + np.abs(weight)) + 1e-6 * np.abs(bias)).all()


def test_not_a_number_stays_in_its_row() -> None:
    x, weight, bias = operands(4, 33)
    clean = layer_norm(x, weight, bias)
    x[1, 32], x[2, 3] = np.nan, np.inf
    found = layer_norm(x, weight, bias)
    assert np.isnan(found[1]).all()
    assert np.isnan(found[2]).all()
    assert_same_bits(found[[0, 3]], clean[[0, 3]])


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 8), (8,), (2, 3, 8)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    one = np.ones(shape[-1], np.float32)
    found = layer_norm(x, one, one * 0)
    assert found.shape == shape
    assert np.allclose(found, norm_stated("layer", x, one, one * 0) if x.size else x, atol=1e-5)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"x": np.zeros((2, 8))}, "x: needs float32"),
        ({"x": np.array(1, np.float32)}, r"x: needs shape \[..., N\]"),
        ({"weight": np.zeros(7, np.float32)}, r"weight: needs shape \(8,\)"),
        ({"bias": np.zeros((1, 8), np.float32)}, r"bias: needs shape \(8,\)"),
        ({"threads": -1}, "threads"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    ones = np.ones(8, np.float32)
    given: dict[str, Any] = {"x": np.ones((2, 8), np.float32), "weight": ones, "bias": ones}
    with pytest.raises((TypeError, ValueError), match=message):
        layer_norm(**(given | change))
