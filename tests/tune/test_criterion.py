import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import OptionError
from octavo.tune.goals import Criterion

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(baseline=NUMBERS, bound=st.floats(0, 10), relative=st.booleans(), higher=st.booleans())
def test_the_unmodified_model_always_meets_its_own_criterion(
    baseline: float, bound: float, relative: bool, higher: bool
) -> None:
    given_bound = {"relative": bound} if relative else {"absolute": bound}
    assert Criterion(**given_bound, higher_is_better=higher).meets(baseline, baseline)


@pytest.mark.parametrize(
    ("criterion", "baseline", "accuracy", "loss", "meets"),
    [
        (Criterion(relative=0.01), 0.9, 0.892, 0.008 / 0.9, True),
        (Criterion(relative=0.01), 0.9, 0.890, 0.010 / 0.9, False),
        (Criterion(relative=0.01), 0.9, 0.95, -0.05 / 0.9, True),
        (Criterion(relative=0.5), -2.0, -2.9, 0.45, True),  # a log-likelihood
        (Criterion(relative=0.5), -2.0, -3.1, 0.55, False),
        (Criterion(relative=0.01), 0.0, 0.1, -math.inf, True),
        (Criterion(relative=0.01), 0.0, -0.1, math.inf, False),
        (Criterion(relative=0.1, higher_is_better=False), 2.0, 2.1, 0.05, True),
        (Criterion(relative=0.1, higher_is_better=False), 2.0, 2.3, 0.15, False),
        (Criterion(relative=0.1, higher_is_better=False), -2.0, -1.9, 0.05, True),
        (Criterion(absolute=0.02), 0.5, 0.485, 0.015, True),
        (Criterion(absolute=0.02), 0.5, 0.475, 0.025, False),
        (Criterion(absolute=0.0), 0.5, 0.5, 0.0, True),
        (Criterion(absolute=1.0, higher_is_better=False), -5.0, -4.5, 0.5, True),
        (Criterion(relative=-0.1), 0.5, 0.5, 0.0, False),  # asks for a gain
        (Criterion(relative=-0.1), 0.5, 0.54, -0.08, False),
        (Criterion(relative=-0.1), 0.5, 0.55, -0.1, True),
        (Criterion(absolute=-0.1, higher_is_better=False), 2.0, 1.95, -0.05, False),
        (Criterion(absolute=-0.1, higher_is_better=False), 2.0, 1.8, -0.2, True),
    ],
)
def test_losses_count_in_the_direction_of_the_metric(
    criterion: Criterion, baseline: float, accuracy: float, loss: float, meets: bool
) -> None:
    assert criterion.loss(baseline, accuracy) == pytest.approx(loss)
    assert criterion.meets(baseline, accuracy) is meets


def test_a_loss_of_just_the_bound_is_no_more_than_the_bound() -> None:
    for percent in range(1, 100):
        accuracy = percent / 100
        assert Criterion(relative=0.01).meets(accuracy, accuracy * 0.99), percent
        assert Criterion(absolute=0.01).meets(accuracy, (percent - 1) / 100), percent
        assert not Criterion(absolute=0.01).meets(accuracy, (percent - 1) / 100 - 1e-9), percent


@pytest.mark.parametrize(("baseline", "accuracy"), [(math.nan, 1.0), (1.0, math.nan)])
def test_nan_meets_nothing(baseline: float, accuracy: float) -> None:
    assert not Criterion(relative=10.0).meets(baseline, accuracy)


@pytest.mark.parametrize(
    ("given_bound", "words"),
    [
        ({}, "neither"),
        ({"relative": 0.1, "absolute": 0.1}, "both"),
        ({"relative": math.inf}, "finite"),
        ({"absolute": math.nan}, "finite"),
        ({"absolute": "1%"}, "is a number, not '1%'"),
        ({"absolute": True}, "is a number, not True"),
    ],
)
def test_a_bound_that_is_none_is_refused(given_bound: dict[str, float], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Criterion(**given_bound)


@pytest.mark.parametrize(
    ("criterion", "words"),
    [
        (Criterion(relative=0.01), "at most 1% of the float model's accuracy lost"),
        (Criterion(relative=-0.01), "at least 1% of the float model's accuracy gained"),
        (Criterion(absolute=0.5), "at most 0.5 lost"),
        (
            Criterion(absolute=-0.5, higher_is_better=False),
            "at least 0.5 gained, lower is better",
        ),
    ],
)
def test_in_words(criterion: Criterion, words: str) -> None:
    assert str(criterion) == words
