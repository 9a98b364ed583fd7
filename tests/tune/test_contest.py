"""Which trial is chosen where their times differ by luck, and where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.recipe import FLOAT, Rule, preset
from octavo.results.tuning import Trial
from octavo.tune.contest import MOST, ROUNDS, UNTIMED, Contest, contenders
from octavo.tune.goals import Objective
from octavo.tune.measurements import TimeUpError

BASELINE = Trial(0, None, "float", "float", accuracy=1.0, time_ratio=1.0, bytes=100, score=1.0)


def trial(index: int, time: float, changed: int = 0, loss: float = 0.001, size: int = 25) -> Trial:
    """A trial whose recipe changes so many layers, and that was lucky or not when it was timed."""
    rules = [Rule(FLOAT, name=f"l{at}") for at in range(changed)]
    return Trial(
        index,
        preset("int8").with_rules_first(*rules),
        f"trial {index}",
        str(index),
        accuracy=1 - loss,
        loss=loss,
        meets=True,
        time_ratio=time,
        time_low=time,
        time_high=time,
        bytes=size,
        score=time,
    )


@dataclass
class Timed:
    """Measurements whose comparisons find `true` times by index, within `within` of each pair."""

    true: Mapping[int, float]
    within: float = 0.02
    objective: Objective = field(default_factory=Objective)
    timed: bool = True
    time_for: int = 100  # comparisons
    comparisons: list[list[int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.baseline = BASELINE
        self.timed_already: dict[str, Trial] = {}

    def score(self, one: Trial) -> float | None:
        return self.objective.score(one, BASELINE, True)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def compared(
        self, trials: Sequence[Trial], seconds: float, doing: str, share: float = 1.0
    ) -> dict[str, Any]:
        if len(self.comparisons) == self.time_for:
            raise TimeUpError
        self.comparisons.append([one.index for one in trials])
        times = [1.0, *(self.true[one.index] for one in trials)]
        pairs = [
            [a, b, times[b] / times[a], *(times[b] / times[a] * (1 + w) for w in self.bounds)]
            for b in range(len(times))
            for a in range(b)
        ]
        nothing = [""] * len(times)
        return {"seconds": times, "bytes": [25] * len(times), "errors": nothing, "pairs": pairs}

    @property
    def bounds(self) -> tuple[float, float]:
        return -self.within, self.within


def without(place: int, found: dict[str, Any], error: str = "") -> dict[str, Any]:
    """A comparison in which one variant had no turn, with the `error` that was to blame."""
    found["pairs"] = [pair for pair in found["pairs"] if place not in pair[:2]]
    found["seconds"][place] = None
    found["errors"][place] = error
    return found


def settled(measuring: Timed, trials: Sequence[Trial]) -> tuple[list[Trial], Trial]:
    again, chosen = Contest(measuring).settle(trials)  # type: ignore[arg-type]
    assert chosen is not None
    return again, chosen


def test_luck_does_not_choose() -> None:
    """Trial 8 was timed at a lucky moment: it is as fast as trial 1, which changes no layer."""
    trials = [trial(1, 0.48), trial(5, 0.47, changed=4), trial(8, 0.36, changed=6)]
    again, chosen = settled(Timed({1: 0.48, 5: 0.48, 8: 0.475}), trials)
    assert chosen.index == 1
    assert [one.time_ratio for one in again] == pytest.approx([0.48, 0.48, 0.475])


def test_what_is_faster_by_more_than_chance_is_chosen() -> None:
    trials = [trial(1, 0.50), trial(2, 0.49, changed=4), trial(3, 0.48, changed=6)]
    _, chosen = settled(Timed({1: 0.5, 2: 0.4, 3: 0.398}), trials)
    assert chosen.index == 2  # 3 is no faster than it, and changes more


def test_of_equally_simple_ones_the_more_accurate_is_chosen() -> None:
    trials = [trial(1, 0.40, loss=0.008), trial(2, 0.41, loss=0.001)]
    assert settled(Timed({1: 0.4, 2: 0.401}), trials)[1].index == 2


@pytest.mark.parametrize(
    ("sizes", "times", "index"),
    [
        ((30, 24), (0.5, 0.495), 2),  # 0.6 of 2.4 MB
        ((30, 24), (0.5, 0.505), 2),
        ((25, 24.5), (0.5, 0.495), 1),
        ((30, 24), (0.5, 0.6), 1),
        ((24, 30), (0.5, 0.4), 2),
    ],
)
def test_of_equally_fast_ones_the_smaller_file_is_chosen(
    sizes: tuple[float, float], times: tuple[float, float], index: int
) -> None:
    class Sized(Timed):
        def compared(self, trials: Sequence[Trial], *args: Any, **more: Any) -> dict[str, Any]:
            found = super().compared(trials, *args, **more)
            return {**found, "bytes": [100, *(sizes[one.index - 1] for one in trials)]}

    trials = [trial(1, times[0]), trial(2, times[1], changed=3)]
    assert settled(Sized({1: times[0], 2: times[1]}), trials)[1].index == index


@pytest.mark.parametrize(("slow", "beaten"), [(0.41, True), (0.3, False)])
def test_who_is_far_behind_is_beaten_however_wide_the_interval(slow: float, beaten: bool) -> None:
    contest = Contest(Timed({1: slow, 2: 0.24}, within=0.9))  # type: ignore[arg-type]
    one, other = contest.time([trial(1, slow), trial(2, 0.24)], "")
    assert contest.beats(other, one) == beaten
    assert not contest.beats(one, other)


def test_noise_beyond_the_differences_chooses_the_simplest() -> None:
    trials = [trial(1, 0.5), trial(2, 0.3, changed=1)]
    assert settled(Timed({1: 0.5, 2: 0.45}, within=0.3), trials)[1].index == 1


def test_an_interval_that_tells_nothing_is_not_shown() -> None:
    (wide,) = Contest(Timed({1: 0.2}, within=0.9)).time([trial(1, 0.2)], "")  # type: ignore[arg-type]
    assert (wide.time_ratio, wide.time_low, wide.time_high) == (0.2, None, None)
    assert not wide.shows_no_difference
    (narrow,) = Contest(Timed({1: 0.2})).time([trial(1, 0.2)], "")  # type: ignore[arg-type]
    assert narrow.time_low == pytest.approx(0.196)


def test_the_comparisons_are_few_whatever_was_tried() -> None:
    trials = [trial(at, 0.5 - 0.001 * at, changed=at) for at in range(1, 40)]
    measuring = Timed(dict.fromkeys(range(40), 0.5))
    _, chosen = settled(measuring, trials)
    assert chosen.index == 1
    assert len(measuring.comparisons) <= ROUNDS
    assert all(len(some) <= MOST for some in measuring.comparisons)


def test_one_that_was_unlucky_is_timed_in_the_next_round() -> None:
    """All that were compared turn out slower than what the fifth had shown."""
    trials = [trial(at, 0.30 + 0.01 * at, changed=at) for at in range(1, 6)]
    measuring = Timed({1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.35})
    assert settled(measuring, trials)[1].index == 5
    assert len(measuring.comparisons) == 2


def test_what_one_comparison_found_outlives_the_end_of_the_time() -> None:
    trials = [trial(1, 0.48), trial(2, 0.36, changed=6), *(trial(at, 0.49) for at in (3, 4, 5))]
    measuring = Timed({1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}, time_for=1)
    again, chosen = settled(measuring, trials)
    assert chosen.index == 1
    assert [one.time_ratio for one in again] == [0.5, 0.5, 0.5, 0.5, 0.49]
    assert measuring.notes == [UNTIMED]
    nothing = Timed({}, time_for=0)
    assert Contest(nothing).settle(trials) == (trials, None)  # type: ignore[arg-type]
    assert nothing.notes == [f"{UNTIMED}: luck may have chosen"]


@pytest.mark.parametrize("error", ["RuntimeError: gone", ""])
def test_one_that_was_not_timed_again_is_not_chosen_for_its_luck(error: str) -> None:
    """It can no longer be run, or there was no time for it."""

    class Gone(Timed):
        def compared(self, trials: Sequence[Trial], *args: Any, **more: Any) -> dict[str, Any]:
            place = 1 + [one.index for one in trials].index(1) if trials[0].index == 1 else 0
            found = super().compared(trials, *args, **more)
            return without(place, found, error) if place else found

    trials = [trial(1, 0.1), trial(2, 0.5), trial(3, 0.4, changed=1)]
    again, chosen = settled(Gone({1: 0.1, 2: 0.5, 3: 0.5}), trials)
    assert chosen.index == 2
    assert [one.error for one in again] == [error, "", ""]
    assert (again[0] is trials[0]) == (not error)
    assert again[0].meets == (not error)


def test_nothing_is_timed_again_where_there_is_no_choice() -> None:
    for measuring, trials in (
        (Timed({1: 0.5}), [trial(1, 0.5)]),
        (Timed({1: 0.5, 2: 0.4}, timed=False), [trial(1, 0.5), trial(2, 0.4)]),
    ):
        again, chosen = Contest(measuring).settle(trials)  # type: ignore[arg-type]
        assert (again, chosen, measuring.comparisons) == (trials, None, [])


def test_whole_recipes_are_compared_roughly_and_the_best_of_them_well() -> None:
    measuring = Timed({1: 0.5, 2: 0.52, 3: 0.55, 4: 0.6, 5: 1.2})
    blank = [trial(at, 1.0) for at in range(1, 6)]
    found = Contest(measuring).time_many(blank)  # type: ignore[arg-type]
    assert measuring.comparisons == [[1, 2, 3, 4, 5], [1, 2, 3]]
    assert [one.score for one in found] == pytest.approx([0.5, 0.52, 0.55, 0.6, 1.2])
    assert set(measuring.timed_already) == {"1", "2", "3", "4", "5"}


def test_a_recipe_that_cannot_be_made_has_an_error_and_no_score() -> None:
    class Broken(Timed):
        def compared(self, trials: Sequence[Trial], *args: Any, **more: Any) -> dict[str, Any]:
            return without(1, super().compared(trials, *args, **more), "ModelError: no")

    blank = SimpleNamespace(time_ratio=None, score=None)
    trials = [Trial(at, preset("int8"), "", str(at), **vars(blank)) for at in (1, 2)]
    first, second = Contest(Broken({1: 0.5, 2: 0.4})).time(trials, "")  # type: ignore[arg-type]
    assert (first.error, first.score) == ("ModelError: no", None)
    assert second.score == pytest.approx(0.4)


def test_the_size_counts_where_the_objective_says_so() -> None:
    both = Objective.of([("performance", 1), ("modelsize", 1)])
    measuring = Timed({1: 0.5, 2: 0.5}, objective=both)
    contest = Contest(measuring)  # type: ignore[arg-type]
    small, large = (
        Trial(**{**vars(trial(at, 0.5)), "bytes": size, "score": (0.5 + size / 100) / 2})
        for at, size in ((1, 15), (2, 25))
    )
    assert contest.beats(small, large)
    assert not contest.beats(large, small)


def test_the_simplest_is_always_a_contender() -> None:
    trials = [trial(1, 0.9), *(trial(at, 0.5, changed=2) for at in range(2, 12))]
    some = contenders(trials)
    assert trials[0] in some
    assert len(some) == MOST
