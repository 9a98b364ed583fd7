"""Rounding to groups: never worse than the plain way, exact where that can be, bad input named."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from octavo.core.group_rounding import round_groups
from octavo.core.kernels import WeightFormat

GROUPED = [f for f in WeightFormat if f.group and not f.minimum]


def _weight(n: int = 24, k: int = 200, seed: int = 0) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.standard_t(4, size=(n, k)) * 0.03).astype(np.float32)


def _plain_noise(w: npt.NDArray[np.float32], bits: int, group: int) -> float:
    """The squared error of round(w / (max|w| / qmax)) for each group, in float64."""
    most, total = 2 ** (bits - 1) - 1, 0.0
    for i in range(0, w.shape[1], group):
        part = w[:, i : i + group].astype(np.float64)
        scale = np.abs(part).max(axis=1, keepdims=True) / most
        total += np.square(part - np.round(part / scale) * scale).sum()
    return total


@pytest.mark.parametrize("fmt", GROUPED, ids=lambda f: f.value)
def test_search_beats_the_plain_range(fmt: WeightFormat) -> None:
    w = _weight()
    found, plain = round_groups(w, fmt), round_groups(w, fmt, search=False)
    assert found.noise <= plain.noise
    if fmt.bits == 4:
        assert found.noise < 0.8 * _plain_noise(w, 4, fmt.group)


@pytest.mark.parametrize("fmt", GROUPED, ids=lambda f: f.value)
def test_sums_are_those_of_the_weight(fmt: WeightFormat) -> None:
    w = _weight()
    found = round_groups(w, fmt)
    held = found.weight.dequantize().astype(np.float64)
    assert found.signal == pytest.approx(np.square(w, dtype=np.float64).sum(), rel=1e-6)
    assert found.noise == pytest.approx(np.square(w - held).sum(), rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights_are_refused_by_channel(bad: float) -> None:
    w = _weight()
    w[17, 3] = bad
    with pytest.raises(ValueError, match="channel 17 along axis 0 holds NaN or infinity"):
        round_groups(w, WeightFormat.INT4_32)


def test_a_format_without_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="int8 has no groups"):
        round_groups(_weight(), WeightFormat.INT8)
