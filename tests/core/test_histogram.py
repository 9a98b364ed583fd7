"""Observers against torch.ao's numbers, kept here as golden values.

The golden values are what `_non_linear_param_search()` of HistogramObserver of torch 2.13.0 (CPU)
gives on the same data; tests/torch/qconfig has those of the others.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from octavo.core.histogram import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    Observer,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from octavo.core.qparams import Grid, QType, qparams_from_range

BATCHES = [
    np.array([[0.1, -0.7, 0.3], [1.9, 0.2, -1.1]], np.float32),
    np.array([[0.4, 2.6, -0.9], [-0.3, 0.8, 0.6]], np.float32),
    np.array([[-1.3, 0.5, 0.7], [0.01, -2.2, 3.3]], np.float32),
]
INT8 = Grid.of(QType.INT8, symmetric=True)
UINT8 = Grid.of(QType.UINT8, symmetric=False)
RANGED = [
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    HistogramObserver,
]
every_ranged = pytest.mark.parametrize("kind", RANGED)


def watched(observer: Observer, batches: list[np.ndarray]) -> Observer:
    for batch in batches:
        observer.observe(batch)
    return observer


def numbers(observer: Observer) -> tuple[list[float], list[float]]:
    lo, hi = observer.range()
    assert lo.dtype == hi.dtype == np.float32
    assert lo.ndim == hi.ndim == 1
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
    observer = watched(HistogramObserver(), batches)
    width = (max(b.max() for b in batches) - min(b.min() for b in batches)) / 2048
    (got_lo,), (got_hi,) = numbers(observer)
    assert abs(got_lo - lo) <= width
    assert abs(got_hi - hi) <= width


def test_merged_histograms_keep_every_value() -> None:
    observer = HistogramObserver(bins=64)
    for factor in (0.0, 1.0, 0.5, 7.0, 1.0):
        observer.observe(bell(1000) * np.float32(factor))
    assert observer._counts.sum() == pytest.approx(5000, rel=1e-12)


def test_histograms_of_extreme_values() -> None:
    big = np.float32(3.4028234663852886e38)
    for batches in (
        [np.array([-big, 0, big])],
        [np.array([1.0]), np.array([-big, big])],
        [np.float32([1e-45, -1e-45])],
        [np.zeros(3), np.float32([1e-45])],
    ):
        (lo,), (hi,) = numbers(watched(HistogramObserver(), batches))
        values = np.concatenate(batches)
        assert values.min() <= lo <= hi <= values.max()


@every_ranged
@settings(deadline=None, max_examples=15)
@given(
    batches=st.lists(
        hnp.arrays(np.float32, (3, 4), elements=st.floats(-1e6, 1e6, width=32)),
        min_size=1,
        max_size=4,
    )
)
def test_ranges_stay_within_the_data(kind: type[Observer], batches: list) -> None:
    lo, hi = watched(kind(), batches).range()
    stack = np.stack(batches)
    one_bin = (float(stack.max()) - float(stack.min())) * 1e-6
    assert (lo <= hi).all()
    assert stack.min() <= lo.min()
    assert hi.max() <= stack.max() + one_bin
    if "MinMax" in kind.__name__ and "Moving" not in kind.__name__:
        axes = (0, 2) if "Channel" in kind.__name__ else None
        assert lo.tolist() == np.atleast_1d(stack.min(axis=axes)).tolist()
        assert hi.tolist() == np.atleast_1d(stack.max(axis=axes)).tolist()


@every_ranged
def test_qparams_are_those_of_the_range(kind: type[Observer]) -> None:
    observer = watched(kind(), BATCHES)
    for grid in (INT8, UINT8):
        got = observer.qparams(grid)
        want = qparams_from_range(*observer.range(), grid, observer.axis)
        assert got.scale.tolist() == want.scale.tolist()
        assert got.zero_point.tolist() == want.zero_point.tolist()
        assert got.axis == (0 if "Channel" in kind.__name__ else None)


@every_ranged
def test_nothing_observed_is_an_error_and_reset_forgets(kind: type[Observer]) -> None:
    observer = kind()
    observer.observe(np.zeros((0, 4), np.float32))  # empty: as if it had not been
    for ask in (observer.range, lambda: observer.qparams(INT8)):
        with pytest.raises(ValueError, match=f"{kind.__name__} has observed nothing"):
            ask()
    watched(observer, [b * 100 for b in BATCHES]).reset()
    with pytest.raises(ValueError, match="observed nothing"):
        observer.range()
    assert numbers(watched(observer, BATCHES)) == numbers(watched(kind(), BATCHES))


@every_ranged
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_non_finite_data_is_refused_and_not_kept(kind: type[Observer], value: float) -> None:
    observer = watched(kind(), BATCHES)
    before = numbers(observer)
    bad = np.ones((2, 3))
    bad[1, 2] = value  # 1e300 is infinite in float32
    with pytest.raises(ValueError, match=r"NaN or infinity: .* at index"):
        observer.observe(bad)
    assert numbers(observer) == before


@every_ranged
def test_ranges_are_copies_and_data_is_left_alone(kind: type[Observer]) -> None:
    data = [b.copy() for b in BATCHES]
    observer = watched(kind(), data)
    before = numbers(observer)
    observer.range()[0][:] = 77
    for batch, original in zip(data, BATCHES, strict=True):
        assert np.array_equal(batch, original)
        batch[:] = 99
    assert numbers(observer) == before


def test_numbers_vectors_and_other_dtypes() -> None:
    for dtype in (np.float16, np.float64, np.int8, np.bool_):
        observer = watched(MinMaxObserver(), [np.array([0, 1, 1], dtype)])
        assert numbers(observer) == ([0.0], [1.0])
    assert numbers(watched(MinMaxObserver(), [np.float32(2.5), np.float32(-1)])) == ([-1], [2.5])
    vector = watched(PerChannelMinMaxObserver(0), [np.float32([3, -4]), np.float32([1, 2])])
    assert numbers(vector) == ([1, -4], [3, 2])


@pytest.mark.parametrize("kind", [PerChannelMinMaxObserver, MovingAveragePerChannelMinMaxObserver])
def test_channel_axes_are_checked(kind: type[Observer]) -> None:
    with pytest.raises(ValueError, match="axis -1"):
        kind(axis=-1)
    with pytest.raises(ValueError, match=r"axis 1 is not in 0\.\.0 of shape \(3,\)"):
        kind(axis=1).observe(np.zeros(3, np.float32))
    observer = watched(kind(axis=1), BATCHES)
    with pytest.raises(ValueError, match="saw 3 channels along axis 1 before, now 2"):
        observer.observe(np.zeros((2, 2), np.float32))


def test_moving_averages_follow_their_constant() -> None:
    exact = MovingAverageMinMaxObserver(averaging_constant=0.5)
    assert numbers(watched(exact, [np.float32([0, 8]), np.float32([-4, 4])])) == ([-2], [6])
    latest = MovingAverageMinMaxObserver(averaging_constant=1.0)
    assert numbers(watched(latest, BATCHES)) == ([np.float32(-2.2)], [np.float32(3.3)])
    for constant in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=f"averaging_constant {constant}"):
            MovingAverageMinMaxObserver(constant)
    with pytest.raises(ValueError, match="bins 1"):
        HistogramObserver(bins=1)
    with pytest.raises(ValueError, match="does not fit into float32"):
        watched(exact, [np.float32([3e38, 3e38]), np.float32([-3e38, -3e38])])


def test_a_placeholder_does_nothing_and_says_so() -> None:
    observer = PlaceholderObserver()
    watched(observer, [*BATCHES, np.array([math.nan])]).reset()
    for ask in (observer.range, lambda: observer.qparams(INT8)):
        with pytest.raises(ValueError, match="PlaceholderObserver observes nothing"):
            ask()
