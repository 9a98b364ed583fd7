"""Whole recipes before layers: which are evaluated, and where the search by layers starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from octavo.recipe import Recipe, Scheme, plan, preset
from octavo.results.tuning import LeftOut, Trial
from octavo.tune.auto import Auto, most_evaluations
from octavo.tune.search import Candidate
from octavo.tune.space import Space
from tests.tune.simulated_context import RAISED, Held, Outcome, Simulated, drive, layers

COUNT = 6
INT8, TENSOR, INT4 = (preset(n).default for n in ("int8", "int8-per-tensor", "int4"))


def around(name: str, raised: tuple[Scheme, ...] = RAISED) -> Space:
    base = preset(name)
    return Space.of(plan(layers(COUNT), base), base, raised=raised)


class Racing(Simulated):
    """What each preset's scheme takes of the float model's time, and of the accuracy a layer."""

    times: Mapping[Scheme, float]
    slow: float = 0.0  # what a mixture of schemes costs beside
    sizes: Mapping[Scheme, int] = {}

    def trial(self, index: int, recipe: Recipe | None, held: Held, words: str = "") -> Trial:
        found = super().trial(index, recipe, held, words)
        times = [self.times.get(held[n], 0.9) if n in held else 1.0 for n in self.names]
        mixed = self.slow * (len(set(held.values())) > 1)
        size = self.sizes.get(recipe.default, found.bytes) if recipe else found.bytes
        return replace(found, score=sum(times) / COUNT + mixed, bytes=size)

    @property
    def names(self) -> list[str]:
        return [choice.layer.name for choice in self.space.choices]


def race(
    times: Mapping[str, float],
    losses: Mapping[str, float],
    bad: str = "",
    slow: float = 0.0,
    most: int = 2000,
    sizes: Mapping[str, int] | None = None,
    **more: bool,
) -> Outcome:
    """Presets by name: their times, and what each of their layers costs; `bad` layers ten times."""
    by_scheme = {preset(name).default: loss for name, loss in losses.items()}

    def lost(held: Held) -> float:
        return sum((10 if n == bad else 1) * by_scheme.get(s, 0.0) for n, s in held.items())

    spaces = [around(name, (INT8, *RAISED) if name != "int8" else RAISED) for name in times]
    context = Racing(spaces[0], lost, others=spaces[1:], **more)  # type: ignore[arg-type]
    context.slow = slow
    context.times = {preset(name).default: time for name, time in times.items()}
    context.sizes = {preset(name).default: size for name, size in (sizes or {}).items()}
    return drive(Auto(), context, most)


def tried(outcome: Outcome) -> list[str]:
    return [candidate.description for candidate in outcome.candidates]


def test_the_fastest_that_keeps_the_accuracy_is_the_only_trial() -> None:
    times = {"int8": 0.5, "int8-per-tensor": 0.3, "int8-accurate": 0.6}
    outcome = race(times, dict.fromkeys(times, 1e-5))
    assert tried(outcome) == ["int8-per-tensor"]


@pytest.mark.parametrize(
    ("size", "taken"), [(24, "int8"), (23, "int8-per-tensor"), (18, "int8-per-tensor")]
)
def test_of_equally_fast_ones_the_smaller_then_the_first_named_is_taken(
    size: int, taken: str
) -> None:
    """What the scales of channels take makes no file a larger one."""
    times = {"int8": 0.5, "int8-per-tensor": 0.5}
    sizes = {"int8": 24.5, "int8-per-tensor": size}
    outcome = race(times, dict.fromkeys(times, 1e-5), sizes=sizes)  # type: ignore[arg-type]
    assert tried(outcome) == [taken]
    left = "int8" if taken != "int8" else "int8-per-tensor"
    assert outcome.context.left_out == {left: LeftOut.BEHIND}


def test_why_one_was_left_out_is_what_decided() -> None:
    times = {"int8": 0.6, "int8-per-tensor": 0.4, "int8-accurate": 0.7, "float16": 0.8, "int4": 1.3}
    losses = {"int8-per-tensor": 0.1, "int8": 0.09, "int8-accurate": 1e-5, "float16": 1e-9}
    outcome = race(times, {**losses, "int4": 1e-5})
    assert tried(outcome)[:2] == ["int8-per-tensor", "int8-accurate"]
    assert outcome.context.left_out == {
        "int8": LeftOut.NO_NEARER,
        "float16": LeftOut.BEHIND,
        "int4": LeftOut.NO_GAIN,
    }


@pytest.mark.parametrize("timed", [0, 1, 2])
def test_where_time_is_short_they_are_tried_as_they_are_named(
    timed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that had a turn and are slower than the float model are left out all the same."""
    appraise = Racing.appraise

    def short_of_time(context: Racing, candidates: Sequence[Candidate]) -> list[Trial]:
        trials = appraise(context, candidates)
        return [*trials[:timed], *(replace(trial, score=None) for trial in trials[timed:])]

    monkeypatch.setattr(Racing, "appraise", short_of_time)
    times = {"int8": 0.5, "int8-block": 1.3, "int8-per-tensor": 0.3}
    losses = {"int8": 0.1, "int8-block": 0.01, "int8-per-tensor": 1e-5}
    expected = ["int8", "int8-per-tensor"] if timed == 2 else list(times)
    assert tried(race(times, losses))[: len(expected)] == expected


def test_of_those_that_had_a_turn_the_fastest_is_tried_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appraise = Racing.appraise

    def short_of_time(context: Racing, candidates: Sequence[Candidate]) -> list[Trial]:
        *timed, last = appraise(context, candidates)
        return [*timed, replace(last, score=None)]

    monkeypatch.setattr(Racing, "appraise", short_of_time)
    times = {"int8": 0.41, "int8-per-tensor": 0.24, "float16": 0.3}
    assert tried(race(times, dict.fromkeys(times, 1e-5))) == ["int8-per-tensor"]


def test_one_that_is_no_faster_than_float_is_not_tried() -> None:
    times = {"int8": 0.5, "int8-block": 1.3}
    outcome = race(times, {"int8": 0.1, "int8-block": 0.0})
    assert "int8-block" not in tried(outcome)


def test_one_whose_output_is_hardly_nearer_than_a_failure_is_not_tried() -> None:
    times = {"int8": 0.6, "int8-per-tensor": 0.4, "int8-accurate": 0.7}
    outcome = race(times, {"int8-per-tensor": 0.1, "int8": 0.09, "int8-accurate": 1e-5})
    assert tried(outcome)[:2] == ["int8-per-tensor", "int8-accurate"]


def test_a_faster_one_that_missed_is_mended_and_wins() -> None:
    times = {"int8": 0.5, "int8-per-tensor": 0.3}
    outcome = race(times, {"int8": 1e-6, "int8-per-tensor": 1.1e-3}, bad="l2")
    assert tried(outcome)[:2] == ["int8-per-tensor", "int8"]
    assert outcome.best.words.startswith("int8-per-tensor, 1 layer int8 per channel")
    assert len(outcome.trials) <= 2 + most_evaluations(COUNT)


def test_mending_ends_where_it_can_no_longer_win() -> None:
    """Layers with 8 bits in the recipe of 4 cost more time than the whole recipe of 8."""
    times = {"int8": 0.5, "int4": 0.45, "int8-accurate": 0.9}
    outcome = race(times, {"int8": 1e-6, "int4": 0.004, "int8-accurate": 1e-6}, slow=0.2)
    assert tried(outcome)[:2] == ["int4", "int8"]
    assert outcome.best.words == "int8"
    assert len(outcome.trials) <= 4


def test_where_none_meets_the_nearest_is_mended() -> None:
    times = {"int8": 0.5, "int8-per-tensor": 0.3}
    outcome = race(times, {"int8": 1.1e-3, "int8-per-tensor": 0.5}, bad="l2")
    assert tried(outcome)[:2] == ["int8-per-tensor", "int8"]
    assert outcome.best.meets
    assert list(outcome.changed()) == ["l2"]


def test_of_4_bits_layers_get_8_before_they_are_left_float() -> None:
    times = {"int8": 0.5, "int4": 0.3}
    outcome = race(times, {"int8": 1e-6, "int4": 1.1e-3}, bad="l2")
    words = tried(outcome)
    assert words[:2] == ["int4", "int8"]
    assert outcome.best.words.startswith("int4, 1 layer int8 per channel")
    assert not any("float" in each for each in words)


def test_where_accuracy_is_the_objective_all_are_evaluated() -> None:
    times = {"int8": 0.5, "int8-per-tensor": 0.3, "int8-accurate": 0.6}
    outcome = race(times, dict.fromkeys(times, 1e-5), needs_accuracy=True)
    assert tried(outcome) == list(times)


@pytest.mark.parametrize("mended", [True, False])
def test_with_time_left_the_search_goes_on_from_the_better_one(mended: bool) -> None:
    times = {"int8": 0.5, "int8-per-tensor": 0.3}
    each = 1.1e-3 if mended else 0.5
    losses = {"int8": 1e-6, "int8-per-tensor": each}
    outcome = race(times, losses, bad="l2", most=40, keeps_going=True)
    assert outcome.best.meets
    assert outcome.candidates[-1].description.startswith("int8-per-tensor" if mended else "int8,")
