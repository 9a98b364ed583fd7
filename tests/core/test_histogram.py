"""Histograms against torch.ao's numbers, kept here as golden values.

The golden values are what `_non_linear_param_search()` of HistogramObserver of torch 2.13.0 (CPU)
gives on the same data; tests/torch/qconfig has those of the others.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from octavo.core.histogram import HistogramObserver, finite_float32

BATCHES = [
    np.array([[0.1, -0.7, 0.3], [1.9, 0.2, -1.1]], np.float32),
    np.array([[0.4, 2.6, -0.9], [-0.3, 0.8, 0.6]], np.float32),
]


def watched(batches: list[np.ndarray], bins: int = 2048) -> HistogramObserver:
    observer = HistogramObserver(bins)
    for batch in batches:
        observer.observe(batch)
    return observer


def numbers(observer: HistogramObserver) -> tuple[list[float], list[float]]:
    lo, hi = observer.range()
    assert lo.dtype == hi.dtype == np.float32
    assert lo.shape == hi.shape == (1,)
    return lo.tolist(), hi.tolist()


def ramp(n: int) -> np.ndarray:
    return ((np.arange(n) * 7919 % 10007 - 5003) / 5003).astype(np.float32)


def bell(n: int) -> np.ndarray:
    """`n` values around 0 in -4..4, roughly normal: the sum of eight ramps."""
    i = np.arange(n, dtype=np.int64)
    steps = (7919, 31, 5003, 1234, 8642, 977, 4441, 613)
    total = sum((i * step % 10007 for step in steps), np.zeros(n, np.int64))
    return (total / 10007 - 4).astype(np.float32)


HISTOGRAMS = {
    "bell": ([bell(9000)], -4.0, 3.0580086708068848),
    "heavy tails": ([bell(10007) ** 5], -1024.0, 149.612548828125),
    "ramp": ([ramp(5000) ** 9], -1.0, 0.994140625),
    "outliers": ([np.append(ramp(4000), np.float32([9.0, -6.5]))], -6.5, 8.992431640625),
    "all positive": ([np.abs(ramp(3000)) ** 5 + 1], 1.0, 1.99853515625),
    "constant": ([np.full(5, -2.5, np.float32)], -2.5, -2.5),
    "merged, wider": (
        [bell(5000) ** 3, bell(9000)[5000:] ** 3 * np.float32(1.5)],
        -64.0,
        26.385269165039062,
    ),
    "merged, outlier": ([ramp(4000), np.float32([9.0]), ramp(2000)], -1.0, 8.9951171875),
    "merged, constant first": (
        [np.full(50, 0.25, np.float32), ramp(3000) ** 3],
        -1.0,
        0.9931640625,
    ),
}


@pytest.mark.parametrize(("batches", "lo", "hi"), HISTOGRAMS.values(), ids=HISTOGRAMS)
def test_histograms_find_the_range_of_torch(batches: list, lo: float, hi: float) -> None:
    observer = watched(batches)
    width = (max(b.max() for b in batches) - min(b.min() for b in batches)) / 2048
    (got_lo,), (got_hi,) = numbers(observer)
    assert abs(got_lo - lo) <= width
    assert abs(got_hi - hi) <= width


def test_merged_histograms_keep_every_value() -> None:
    batches = [bell(1000) * np.float32(factor) for factor in (0.0, 1.0, 0.5, 7.0, 1.0)]
    observer = watched(batches, bins=64)
    assert observer.counts.sum() == pytest.approx(5000, rel=1e-12)


def test_histograms_of_extreme_values() -> None:
    big = np.float32(3.4028234663852886e38)
    for batches in (
        [np.array([-big, 0, big])],
        [np.array([1.0]), np.array([-big, big])],
        [np.float32([1e-45, -1e-45])],
        [np.zeros(3), np.float32([1e-45])],
    ):
        (lo,), (hi,) = numbers(watched(batches))
        values = np.concatenate(batches)
        assert values.min() <= lo <= hi <= values.max()


@settings(deadline=None, max_examples=15)
@given(
    batches=st.lists(
        hnp.arrays(np.float32, (3, 4), elements=st.floats(-1e6, 1e6, width=32)),
        min_size=1,
        max_size=4,
    )
)
def test_ranges_stay_within_the_data(batches: list) -> None:
    (lo,), (hi,) = numbers(watched(batches))
    stack = np.stack(batches)
    assert stack.min() <= lo <= hi
    assert hi <= stack.max() + (float(stack.max()) - float(stack.min())) * 1e-6


def test_nothing_observed_is_an_error() -> None:
    with pytest.raises(ValueError, match="HistogramObserver has observed nothing yet"):
        watched([np.zeros((0, 4), np.float32)]).range()  # empty: as if it had not been


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_non_finite_data_is_refused_and_not_kept(value: float) -> None:
    observer = watched(BATCHES)
    before = numbers(observer)
    bad = np.ones((2, 3))
    bad[1, 2] = value  # 1e300 is infinite in float32
    with pytest.raises(ValueError, match=r"NaN or infinity: .* at index \(1, 2\)"):
        observer.observe(bad)
    assert numbers(observer) == before


def test_ranges_are_copies_and_data_is_left_alone() -> None:
    data = [b.copy() for b in BATCHES]
    observer = watched(data)
    before = numbers(observer)
    observer.range()[0][:] = 77
    for batch, original in zip(data, BATCHES, strict=True):
        assert np.array_equal(batch, original)
        batch[:] = 99
    assert numbers(observer) == before


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.bool_])
def test_other_dtypes_become_float32(dtype: type) -> None:
    found = finite_float32(np.array([0, 1, 1], dtype))
    assert (found.dtype, found.tolist()) == (np.float32, [0, 1, 1])
