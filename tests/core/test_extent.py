"""Bounds, root mean square and outliers, array by array, are those of all numbers as one."""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core import value_range as module
from octavo.core.value_range import Extent

MULTIPLE = 2.0

# Integers, so that every sum is exact and an outlier is one in any order of operations.
numbers = st.one_of(
    st.integers(-3, 3).map(float),
    st.integers(-400, 400).map(float),
    st.sampled_from([math.nan, math.inf, -math.inf]),
)
arrays = st.lists(numbers, max_size=30).map(lambda values: np.array(values, np.float32))


def finite(*parts: np.ndarray) -> np.ndarray:
    whole = np.concatenate([part.ravel() for part in parts]).astype(np.float64)
    return whole[np.isfinite(whole)]


def rms(values: np.ndarray) -> float:
    return math.sqrt(float((values**2).sum()) / values.size) if values.size else 0.0


def outliers(values: np.ndarray) -> int:
    return int((np.abs(values) > MULTIPLE * rms(values)).sum())


def counted(*parts: np.ndarray) -> Extent:
    found = Extent(MULTIPLE)
    for part in parts:
        found.add(part)
    return found


@settings(deadline=None, max_examples=30)
@given(st.lists(arrays, max_size=5))
def test_the_numbers_are_those_of_all_arrays_as_one(parts: list[np.ndarray]) -> None:
    values = finite(np.empty(0), *parts)
    with patch.object(module, "BLOCK", 4):
        found = counted(*parts)
        whole = counted(np.concatenate([np.empty(0), *parts]))
    for extent in (found, whole):
        assert extent.values == values.size
        assert extent.low == values.min(initial=math.inf)
        assert extent.high == values.max(initial=-math.inf)
        assert extent.rms == rms(values)
    assert whole.outliers == outliers(values)
    first = [rms(finite(np.empty(0), *parts[: i + 1])) for i in range(len(parts))]
    if max(first, default=0.0) <= module.FALL * rms(values):
        assert found.outliers == whole.outliers
    assert found.outliers <= whole.outliers


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "bool"])
def test_any_real_type_and_any_layout(dtype: str) -> None:
    x = np.random.default_rng(0).integers(-100, 100, (7, 6, 5)).astype(dtype)
    x[3, 2, 1] = 1
    for view in (x, x.T, x[::2, ::-1]):
        found, values = counted(view), view.astype(np.float64)
        assert (found.low, found.high) == (values.min(), values.max())
        assert found.rms == pytest.approx(math.sqrt((values**2).mean()), rel=1e-14)
        assert found.outliers == outliers(values)


def test_blocks_of_the_true_size() -> None:
    x = np.random.default_rng(0).standard_normal(module.BLOCK + 3).astype(np.float32)
    x[[0, 5, -1]] = 400, -900, np.nan
    found = Extent(30.0)
    found.add(x)
    values = finite(x)
    assert (found.values, found.low, found.outliers) == (x.size - 1, -900, 2)
    assert found.high == 400
    assert found.rms == pytest.approx(rms(values), rel=1e-12)


def test_nothing_and_zeros_have_no_outliers() -> None:
    for empty in (counted(), counted(np.empty((0, 3))), counted(np.array([np.nan, np.inf]))):
        assert (empty.values, empty.rms, empty.outliers) == (0, 0.0, 0)
    zeros = counted(np.zeros(5), np.zeros(2))
    assert (zeros.values, zeros.low, zeros.high, zeros.rms, zeros.outliers) == (7, 0, 0, 0, 0)


def test_squares_that_float64_cannot_hold_are_no_error() -> None:
    large = counted(np.array([1e200, -1e200]))
    assert (large.low, large.high, large.rms, large.outliers) == (-1e200, 1e200, math.inf, 0)
    small = counted(np.array([1e-200, 0.0]))
    assert (small.high, small.rms, small.outliers) == (1e-200, 0.0, 0)


def test_outliers_are_found_whatever_run_they_come_in() -> None:
    """Those of a run that is louder than all are kept until the quiet ones have come."""
    loud, quiet = np.full(1000, 0.5), np.full(20_000, 0.1)
    loud[:3] = 40.0, -40.0, 1.5  # root mean squares of 1.9 and, in the end, 0.4
    for order in ((loud, quiet), (quiet, loud), (loud[:500], quiet, loud[500:])):
        assert counted(*order).outliers == 3


def test_few_numbers_are_kept() -> None:
    found = Extent(30.0)
    for seed in range(4):
        found.add(np.random.default_rng(seed).standard_cauchy(100_000))
        assert found._far.size <= found.values * (module.FALL / 30) ** 2
