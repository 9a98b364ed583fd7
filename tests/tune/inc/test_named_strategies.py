"""All strategies but `auto`, and what all of them have in common."""

import math
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from octavo.errors import OptionError
from octavo.recipe import FLOAT, Scheme
from octavo.results.tuning import Trial
from octavo.tune.arguments import strategy_named
from octavo.tune.inc import optuna_search
from octavo.tune.inc import strategies as named_strategies
from octavo.tune.ranking import gap_position, proportional_count
from octavo.tune.trial_memory import BATCH, groups
from tests.tune.simulated_context import (
    BLOCKS,
    GROUPS,
    HALF,
    Held,
    Outcome,
    Simulated,
    drive,
    space_of,
)
from tests.tune.simulated_context import sums as summed

EVEN = {f"l{at}": 0.004 for at in range(4)}  # two of four may stay quantized
STRATEGIES = ["auto", *named_strategies.STRATEGIES]
QUICK = [name for name in STRATEGIES if name != "bayesian"]  # which takes seconds


def search(name: str, count: int, loss: object, most: int = 2000, **more: object) -> Outcome:
    context = Simulated(space_of(count, more.pop("raised", ())), loss, **more)  # type: ignore[arg-type]
    return drive(strategy_named(name), context, most)


def words(outcome: Outcome) -> list[str]:
    return [candidate.description for candidate in outcome.candidates]


def test_the_strategies_are_known_by_name() -> None:
    assert list(STRATEGIES) == "auto basic mse random exhaustive bayesian tpe".split()
    for name in STRATEGIES:
        assert strategy_named(name).name == name
        assert strategy_named(name).converges is (name == "auto")


@pytest.mark.parametrize(("name", "other"), [("bayes", "'bayesian'"), ("sigopt", "tpe")])
def test_an_unknown_strategy_is_refused_with_its_neighbours(name: str, other: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}'.*{other}"):
        strategy_named(name)


@pytest.mark.parametrize(
    ("package", "fail", "work"),
    [("optuna", ["bayesian", "tpe"], ["auto"]), ("torch", ["bayesian"], ["auto", "tpe"])],
)
def test_without_a_package_the_error_names_it(
    package: str, fail: list[str], work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in fail:
        with pytest.raises(OptionError, match=package):
            strategy_named(name)
    for name in work:
        strategy_named(name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_recipe_itself_comes_first_and_alone(name: str) -> None:
    outcome = search(name, 4, lambda held: 0.0)
    assert words(outcome) == ["int8"]


def fails(held: Held) -> float:
    raise ArithmeticError("no result")


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    ("count", "loss"), [(1, lambda held: 0.5), (3, lambda held: 0.5), (3, fails)]
)
def test_nothing_helps_and_it_ends_without_a_repetition(
    name: str, count: int, loss: Callable[[Held], float]
) -> None:
    outcome = search(name, count, loss, error=summed(EVEN), raised=(HALF,))
    assert outcome.ended
    assert max(Counter(c.recipe for c in outcome.candidates).values()) == 1
    assert all(trial.failed == (loss is fails) for trial in outcome.trials)


@pytest.mark.parametrize("name", QUICK)
def test_a_search_is_repeated_and_resumed_exactly(name: str) -> None:
    def context() -> Simulated:
        return Simulated(space_of(8, (BLOCKS, HALF)), summed({f"l{at}": 0.02 for at in range(8)}))

    whole = drive(strategy_named(name), context(), 30)
    assert drive(strategy_named(name), context(), 30).candidates == whole.candidates
    most = min(14, len(whole.trials) - 1)
    resumed = drive(strategy_named(name), context(), 30, recorded=whole.trials[:most])
    assert resumed.candidates == whole.candidates


@pytest.mark.parametrize("name", [n for n in QUICK if n not in ("auto", "random", "tpe")])
def test_a_large_space_is_begun_at_once(name: str) -> None:
    outcome = search(name, 384, lambda held: 0.5, most=9)
    assert len(outcome.trials) >= 9


def test_no_batch_is_larger_than_the_fixed_one() -> None:
    for name in QUICK:
        outcome = search(name, 6, lambda held: 0.5, most=40, raised=(HALF,))
        assert max(map(len, outcome.batches)) <= BATCH


def test_basic_tries_whole_models_then_single_layers_then_sums_of_the_best() -> None:
    damage = {"l0": 0.01, "l1": 0.5, "l2": 0.02, "l3": 0.4, "l4": 0.01}
    outcome = search("basic", 5, summed(damage, {HALF: 0.9}), raised=(BLOCKS, HALF))
    whole = ["int8 per block of 32, weights only", "float16, weights only"]
    assert words(outcome)[:3] == ["int8", *(f"int8, all 5 layers {scheme}" for scheme in whole)]
    # From the best of these, half floats.
    assert [len(outcome.changed(t)) for t in outcome.trials[3:]] == [5] * (len(outcome.trials) - 3)
    left = [
        {name for name, scheme in outcome.changed(t).items() if scheme.is_float}
        for t in outcome.trials[3:]
    ]
    assert left[:5] == [{"l0"}, {"l1"}, {"l2"}, {"l3"}, {"l4"}]
    assert left[5:] == [{"l1", "l3"}, {"l1", "l2", "l3"}, {"l0", "l1", "l2", "l3"}]
    assert outcome.best.meets


def test_basic_reaches_combined_layers_within_its_trials_whatever_their_number() -> None:
    """Two bad layers far apart: no single fallback helps."""
    damage = {"l20": 0.5, "l350": 0.4}
    outcome = search("basic", 384, summed(damage), most=100, max_trials=100)
    assert outcome.best.meets
    assert set(outcome.changed()) >= set(damage)
    assert len(outcome.changed()) <= 2 * 8


def test_basic_takes_layers_one_by_one_where_there_are_trials_enough() -> None:
    outcome = search("basic", 40, lambda held: 0.5, max_trials=100)
    assert [len(outcome.changed(t)) for t in outcome.trials[:43]] == [0, *[1] * 40, 2, 3]


def test_mse_leaves_layers_float_the_worst_first_and_adds_them_up() -> None:
    damage = {"l0": 0.1, "l1": 0.4, "l2": 0.001, "l3": 0.2}
    outcome = search("mse", 4, summed(damage), keeps_going=True)
    changed = [set(outcome.changed(trial)) for trial in outcome.trials]
    assert changed == [set(), {"l1"}, {"l1", "l3"}, {"l0", "l1", "l3"}]
    assert list(outcome.context.ranking) == ["l1", "l3", "l0", "l2"]
    assert outcome.context.runs == 4


def test_exhaustive_tries_everything_the_fewest_deviations_first() -> None:
    outcome = search("exhaustive", 3, lambda held: 0.5, raised=(HALF, BLOCKS))
    sizes = [len(outcome.changed(trial)) for trial in outcome.trials]
    assert sizes == sorted(sizes)
    assert len(sizes) == 4**3 - 1  # all but the float model
    found = {tuple(sorted(outcome.changed(t).items(), key=str)) for t in outcome.trials}
    assert len(found) == len(sizes)


@pytest.mark.parametrize("small", [1, 4096], ids=["drawn", "listed"])
def test_random_draws_everything_once(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_strategies, "SMALL", small)
    outcome = search("random", 3, lambda held: 0.5, raised=(HALF, BLOCKS))
    assert len({c.recipe for c in outcome.candidates}) == len(outcome.candidates) == 4**3 - 1


def test_random_draws_each_scheme_of_a_layer_about_as_often() -> None:
    outcome = search("random", 40, lambda held: 0.5, most=100, raised=(HALF,))
    drawn = Counter(outcome.changed(trial).get("l7", Scheme()) for trial in outcome.trials[1:])
    assert min(drawn[scheme] for scheme in (Scheme(), HALF, FLOAT)) > 15


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_another_seed_draws_others(name: str) -> None:
    one, two = (search(name, 30, lambda held: 0.5, most=9, seed=seed) for seed in (1, 2))
    assert not set(words(one)[1:]) & set(words(two)[1:])


def test_tpe_comes_to_better_recipes_than_random_draws() -> None:
    """Two layers must be float, four must not; the score is what is held."""
    loss = summed({"l1": 0.5, "l4": 0.3})
    scores = {
        name: [
            search(name, 6, loss, most=40, seed=seed, keeps_going=True, raised=(HALF,)).best.score
            for seed in range(3)
        ]
        for name in ("tpe", "random")
    }
    assert sum(map(float, scores["tpe"])) <= sum(map(float, scores["random"]))  # type: ignore[arg-type]
    assert max(map(float, scores["tpe"])) <= 1500  # type: ignore[arg-type]


def test_bayesian_is_repeated_exactly() -> None:
    def context() -> Simulated:
        return Simulated(space_of(3, (HALF,)), summed({"l1": 0.5}), keeps_going=True)

    whole = drive(strategy_named("bayesian"), context(), 13)
    assert whole.best.meets
    assert len({candidate.recipe for candidate in whole.candidates}) == 13
    resumed = drive(strategy_named("bayesian"), context(), 13, recorded=whole.trials[:9])
    assert resumed.candidates == whole.candidates


def test_many_layers_share_numbers_the_worst_have_their_own() -> None:
    damage = {f"l{at}": 1.0 / (1 + at) for at in range(100)}
    context = Simulated(space_of(100), summed(damage))
    sharing = optuna_search._sharing(context, 16)
    assert [len(group) for group in sharing[:8]] == [1] * 8
    assert [group[0].layer.name for group in sharing[:8]] == [f"l{at}" for at in range(8)]
    assert {len(group) for group in sharing[8:]} == {11, 12}
    assert sum(map(len, sharing)) == 100


def test_layers_that_share_a_number_climb_their_own_ladders_together() -> None:
    (long,) = space_of(1, (GROUPS, BLOCKS, HALF)).choices
    (short,) = space_of(2, (HALF,)).choices[1:]
    got = [optuna_search._assignment([[long, short]], (number,)) for number in range(5)]
    assert [schemes["l0"] for schemes in got] == [Scheme(), GROUPS, BLOCKS, HALF, FLOAT]
    assert [schemes["l1"] for schemes in got] == [Scheme(), HALF, HALF, FLOAT, FLOAT]


def test_what_does_not_meet_is_worse_than_all_that_does_and_worse_with_its_loss() -> None:
    def trial(loss: float | None, score: float, meets: bool = False) -> Trial:
        error = "Traceback" if loss is None else ""
        return Trial(1, None, "", "", loss=loss, meets=meets, score=score, error=error)

    context = Simulated(space_of(2), lambda held: 0.0)
    trials = [
        trial(0.0, 5.0, meets=True),
        trial(0.005, -3.0, meets=True),
        trial(0.02, -100.0),
        trial(0.3, -200.0),
        trial(math.inf, 0.0),
        trial(None, 0.0),
    ]
    *worths, failed = optuna_search._worths(trials, context)
    assert failed is None
    assert worths[:2] == [5.0, -3.0]
    known = [worth for worth in worths if worth is not None]
    assert len(known) == 5
    assert known[0] < known[2] < known[3] < known[4] < math.inf


def test_optuna_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    import optuna

    before = optuna.logging.get_verbosity()
    search("tpe", 6, lambda held: 0.5, most=20)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


@pytest.mark.parametrize(
    ("errors", "gap"),
    [
        ([0.5, 1e-4, 1e-5, 1e-5], 1),
        ([0.5, 0.4, 1e-3, 1e-3, 1e-3], 2),
        ([0.5, 0.1, 0.08, 0.07], None),
        ([0.5, 0.4, 0.3, 0.2], None),
        ([0.5, 0.5, 0.5, 1e-9], None),  # the one after the gap is the special one
        ([math.inf, math.inf, 0.5, 0.1], 2),
        ([0.0, 0.0], None),
        ([0.5], None),
        ([], None),
    ],
)
def test_a_clear_gap_in_a_ranking(errors: list[float], gap: int | None) -> None:
    assert gap_position(errors) == gap


@pytest.mark.parametrize(
    ("errors", "loss", "count"),
    [
        ([1.0] * 10, 0.02, 5),  # twice the bound: half of the error must go
        ([1.0] * 10, 0.011, 1),
        ([1.0] * 10, 10.0, 9),
        ([8.0, 1.0, 1.0], 0.02, 1),
        ([1.0] * 10, None, 1),
        ([math.inf, 1.0], 0.02, 1),
    ],
)
def test_a_guess_from_the_loss(errors: list[float], loss: float | None, count: int) -> None:
    assert proportional_count(errors, Trial(1, None, "", "", loss=loss), 0.01) == count


@pytest.mark.parametrize(
    ("length", "count"), [(0, 2), (1, 1), (1, 5), (5, 2), (5, 5), (12, 5), (12, 12)]
)
def test_groups_are_even_and_in_order(length: int, count: int) -> None:
    items = list(range(length))
    found = groups(items, count)
    assert [item for group in found for item in group] == items
    assert len(found) == min(length, count)
    assert max(map(len, found), default=0) - min(map(len, found), default=0) <= 1
