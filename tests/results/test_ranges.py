"""What a range says of outliers, and how it passes through JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from octavo.core.value_range import Extent
from octavo.results.comparison import OUTLIERS, Comparison, LayerDifference, Range


def counted(*arrays: np.ndarray) -> Range | None:
    extent = Extent(OUTLIERS)
    for array in arrays:
        extent.add(array)
    return Range.of(extent)


def test_a_range_is_what_was_counted() -> None:
    x = np.random.default_rng(0).standard_normal(10_000)
    x[7] = -100
    found = counted(x[:4000], x[4000:])
    rms = math.sqrt((x**2).mean())
    assert found == Range(-100.0, x.max(), pytest.approx(rms, rel=1e-12), x.size, 1)
    assert found.largest == 100
    assert found.peak == pytest.approx(100 / rms, rel=1e-12)
    assert found.stretched


def test_nothing_has_no_range_and_zeros_have_no_peak() -> None:
    assert counted() is None
    assert counted(np.array([np.nan, np.inf])) is None
    zeros = counted(np.zeros(4))
    assert zeros == Range(0.0, 0.0, 0.0, 4)
    assert zeros.peak == 0 and not zeros.stretched
    huge = counted(np.array([1e200]))
    assert huge.rms == math.inf and huge.peak == 0


def test_one_scale_over_a_stretched_range_leaves_less_than_four_bits() -> None:
    """What `OUTLIERS` promises, measured: rounding to 8 bits over a range of that peak."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(100_000)
    x[0] = OUTLIERS
    scale = np.abs(x).max() / 127
    noise = np.rint(x / scale) * scale - x
    measured = 10 * math.log10((x**2).sum() / (noise**2).sum())
    peak = counted(x).peak
    assert measured == pytest.approx(10 * math.log10(12 * 127**2 / peak**2), abs=0.1)
    assert measured < 6.02 * 4


def test_ranges_that_json_cannot_hold_come_back() -> None:
    layer = LayerDifference(
        "fc",
        "linear",
        "MatMul",
        ("y",),
        None,
        None,
        inputs=counted(np.array([1e200, -1.0])),
        weights=counted(np.array([1.0, 3.0])),
    )
    found = Comparison("m", "q", "torch", "given", 1, (), (layer,), 0)
    data = json.loads(found.to_json())
    assert data["layers"][0]["inputs"]["rms"] is None
    assert Comparison.from_dict(data) == found
    del data["layers"][0]["inputs"], data["layers"][0]["weights"]  # of an earlier version
    assert Comparison.from_dict(data).layers[0].weights is None
