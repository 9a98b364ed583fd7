"""The middle of values: what it is, how often its interval holds it, and wild values."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from octavo.measure.benchmark import middle_interval


def test_eight_values_give_their_range() -> None:
    # A sum of ranks of 0 has the chance 2^-8 = 0.4%: no shorter interval is 99% sure.
    assert middle_interval([18, 1, 2, 3, 4, 5, 6, 7]) == (4.5, 1.0, 18.0)


def test_bounds_of_twenty_values_are_those_of_the_tables() -> None:
    # Wilcoxon's signed-rank test, n = 20, two-sided 1%: sums of ranks up to 37 are significant, so
    # that the bounds are the 38th smallest and largest average of two values.
    values = [float(3**i % 101) for i in range(20)]
    walsh = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    assert middle_interval(values) == (statistics.median(walsh), walsh[37], walsh[-38])


def test_few_values_are_students() -> None:
    # Mean 2, standard deviation 1; t(2 degrees, 99.5%) = 9.925.
    assert middle_interval([1, 2, 3]) == pytest.approx((2, 2 - 9.925 / 3**0.5, 2 + 9.925 / 3**0.5))


def test_one_value_is_refused() -> None:
    with pytest.raises(ValueError, match="1 values have no interval"):
        middle_interval([1.0])


@pytest.mark.parametrize("n", [2, 7, 8, 30])
def test_the_interval_holds_the_middle_99_times_in_100(n: int) -> None:
    random = np.random.default_rng(n)
    held = 0
    for _ in range(1000):
        _, low, high = middle_interval(random.standard_normal(n).tolist())
        held += low <= 0 <= high
    assert 980 <= held <= 1000


def test_wild_values_do_not_reach_the_middle() -> None:
    random = np.random.default_rng(0)
    values = random.normal(0.03, 0.01, 40)
    plain = middle_interval(values.tolist())
    values[::8] += 5.0
    wild = middle_interval(values.tolist())
    assert wild[0] == pytest.approx(0.03, abs=0.006)
    assert 0.02 < wild[1] < wild[2] < 0.06
    assert wild[2] - wild[1] < 3 * (plain[2] - plain[1])
