import math
from dataclasses import replace

import pytest

from octavo.errors import OptionError
from octavo.results.tuning import Trial
from octavo.tune.goals import Objective

FLOAT = Trial(
    0, None, "float", "", accuracy=0.8, latency=2.0, time_ratio=1.0, bytes=1000, peak_memory=5000
)
TRIAL = replace(
    FLOAT, index=1, accuracy=0.76, latency=1.0, time_ratio=0.5, bytes=250, peak_memory=4000
)


@pytest.mark.parametrize(
    ("objective", "score"),
    [
        ("performance", 0.5),
        ("modelsize", 0.25),
        ("footprint", 0.8),
        ("accuracy", 1.05),  # a twentieth worse than the float model
        ([("performance", 1), ("modelsize", 3)], (0.5 + 3 * 0.25) / 4),
        ([("accuracy", 1), ("footprint", 0)], 1.05),
    ],
)
def test_a_score_is_a_share_of_the_float_models(objective: object, score: float) -> None:
    found = Objective.of(objective)  # type: ignore[arg-type]
    assert found.score(TRIAL, FLOAT, True) == pytest.approx(score)
    assert found.score(FLOAT, FLOAT, True) == pytest.approx(1.0)


def test_a_lower_accuracy_is_better_where_the_metric_says_so() -> None:
    assert Objective.of("accuracy").score(TRIAL, FLOAT, False) == pytest.approx(0.95)


def test_what_was_not_measured_has_no_score() -> None:
    assert Objective.of("performance").score(replace(TRIAL, time_ratio=None), FLOAT, True) is None


def test_a_part_without_weight_need_not_be_measured() -> None:
    objective = Objective.of([("modelsize", 1.0), ("performance", 0.0)])
    assert not objective.needs("performance")
    assert objective.needs("modelsize")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((), "at least one"),
        ((("performence", 1.0),), "Did you mean 'performance'"),
        ((("performance", -1.0),), "0 or more"),
        ((("performance", math.inf),), "finite"),
        ((("performance", "much"),), "a number, not 'much'"),
        ((("performance", 0.0),), "all 0"),
    ],
)
def test_a_wrong_objective_is_refused(parts: tuple[tuple[str, float], ...], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Objective(parts)
