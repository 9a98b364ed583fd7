"""Errors added up array by array are those of all arrays as one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.core import metrics as module
from octavo.core.metrics import (
    Agreement,
    Tally,
    cosine_error,
    holds_numbers,
    relative_error,
    sqnr_db,
)


def pairs(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    found = []
    for shape in ((3, 5), (), (0, 4), (7,)):
        a = rng.standard_normal(shape)
        found.append((np.asarray(a, np.float32), np.asarray(a * 1.01 + 0.02, np.float32)))
    return found


def test_the_sums_are_those_of_all_arrays_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    tally = Tally()
    for a, b in pairs():
        tally.add(a, b)
    a, b = (np.concatenate([p[i].ravel() for p in pairs()]).astype(np.float64) for i in (0, 1))
    noise = float(((a - b) ** 2).sum())
    assert tally.error == pytest.approx(relative_error(a, b), rel=1e-12)
    assert tally.sqnr_db == pytest.approx(sqnr_db(float((a**2).sum()), noise), abs=1e-9)
    assert tally.cosine == pytest.approx(1 - cosine_error(a, b), abs=1e-12)
    assert tally.largest == np.abs(a - b).max()
    assert (tally.values, tally.non_finite, tally.reference_non_finite) == (a.size, 0, 0)


def test_a_number_that_is_not_finite_is_counted_and_never_averaged_away() -> None:
    tally = Tally()
    tally.add(np.array([1.0, 2.0, 3.0]), np.array([1.0, np.nan, np.inf]))
    assert (tally.values, tally.non_finite) == (3, 2)
    assert (tally.error, tally.sqnr_db, tally.cosine) == (math.inf, -math.inf, None)
    assert tally.largest == 0.0


def test_what_is_not_finite_in_the_reference_is_left_out_and_counted() -> None:
    tally = Tally()
    tally.add(np.array([-np.inf, np.nan, 3.0]), np.array([-np.inf, 1.0, 3.5]))
    assert (tally.values, tally.non_finite, tally.reference_non_finite) == (1, 0, 1)
    assert tally.largest == 0.5


def test_zeros_and_what_is_equal() -> None:
    tally = Tally()
    tally.add(np.zeros(3), np.zeros(3))
    assert (tally.error, tally.sqnr_db, tally.cosine) == (0.0, math.inf, 1.0)
    tally.add(np.zeros(3), np.ones(3))
    assert (tally.error, tally.sqnr_db, tally.cosine) == (math.inf, -math.inf, None)


def test_numbers_whose_squares_overflow_are_no_agreement() -> None:
    tally = Tally()
    with np.errstate(over="ignore"):
        tally.add(np.array([1e200]), np.array([-1e200]))
    assert tally.error == math.inf
    assert tally.sqnr_db == -math.inf


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(3, 2\)"):
        Tally().add(np.zeros((2, 3)), np.zeros((3, 2)))


def test_agreement_of_rows_and_of_elements() -> None:
    same = Agreement()
    assert same.share is None
    same.add(np.array([1.0, 2.0, 3.0])[:, None], np.ones((3, 1)))  # nothing to choose from
    assert same.share is None
    same.add(np.array([[1.0, 2.0], [4.0, 3.0]]), np.array([[1.0, 5.0], [3.0, 4.0]]))
    assert (same.rows, same.same) == (2, 1)
    same.add(np.array([[2.0, 1.0]]), np.array([[np.nan, 2.0]]))
    same.add(np.array([[2.0, 1.0]]), np.array([[np.nan, 1.0]]))  # argmax takes NaN for the largest
    assert (same.rows, same.same) == (4, 1)
    labels = Agreement()
    labels.add(np.array([1, 2, 3, 4]), np.array([1, 2, 0, 4]))
    assert labels.share == 0.75


def test_what_holds_numbers() -> None:
    assert all(holds_numbers(np.zeros(1, t)) for t in ("f2", "f4", "i8", "u1", "?"))
    assert not any(holds_numbers(v) for v in (None, [1.0], np.array(["text"]), np.array([None])))
