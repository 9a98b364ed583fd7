import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.recipe import FLOAT, Kind, Scheme, plan, preset
from octavo.tune.auto import Auto, most_evaluations
from octavo.tune.search import Candidate
from octavo.tune.space import Space
from tests.tune.simulated_context import (
    BLOCKS,
    BOUND,
    GROUPS,
    HALF,
    RAISED,
    Held,
    Outcome,
    Simulated,
    drive,
    layer,
    noisy,
    space_of,
    sums,
)

SIZES = [3, 12, 96, 384]
HARMLESS = 1e-5


def damage(count: int, bad: dict[int, float]) -> dict[str, float]:
    return {f"l{at}": bad.get(at, HARMLESS) for at in range(count)}


def auto(
    count: int,
    loss: Callable[[Held], float],
    error: Callable[[Held], float] | None = None,
    raised: tuple[Scheme, ...] = RAISED,
    most: int = 2000,
    **more: object,
) -> Outcome:
    outcome = drive(Auto(), Simulated(space_of(count, raised), loss, error, **more), most)  # type: ignore[arg-type]
    if not more.get("keeps_going"):
        assert outcome.ended
        assert len(outcome.trials) <= most_evaluations(count)
    recipes = [candidate.recipe for candidate in outcome.candidates]
    assert len(set(recipes)) == len(recipes)
    return outcome


@pytest.mark.parametrize(("count", "bound"), [(1, 2), (2, 4), (3, 5), (12, 9), (96, 15), (384, 19)])
def test_the_bound_is_two_and_twice_the_logarithm(count: int, bound: int) -> None:
    assert most_evaluations(count) == bound == math.floor(2 + 2 * math.log2(count))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("share", [0, 0.5, 1], ids=["first", "middle", "last"])
def test_one_bad_layer_is_found_by_the_second_trial(count: int, share: float) -> None:
    bad = int(share * (count - 1))
    outcome = auto(count, sums(damage(count, {bad: 0.5})))
    assert outcome.changed() == {f"l{bad}": FLOAT}
    assert len(outcome.trials) == 2
    assert next(iter(outcome.context.ranking)) == f"l{bad}"
    assert outcome.context.runs <= count + 2 * math.log2(count) + 8


@pytest.mark.parametrize("count", SIZES)
def test_one_bad_layer_is_raised_where_that_is_enough(count: int) -> None:
    softer = {GROUPS: 0.5, BLOCKS: 1e-4, HALF: 1e-5}
    outcome = auto(count, sums(damage(count, {1: 0.5}), softer))
    assert outcome.changed() == {"l1": BLOCKS}
    assert len(outcome.trials) == 3  # groups are seen to be no use without a trial


def silent(held: Held) -> float:
    """All layers do the same to the output."""
    return 0.1 * len(held)


def wrong(held: Held) -> float:
    """The output shows most of the last layers, whichever does damage."""
    return math.fsum(0.1 + 0.01 * int(name[1:]) for name in held)


@pytest.mark.parametrize(
    ("count", "bad", "error"),
    [
        *((12, bad, silent) for bad in (0, 5, 11)),
        *((count, bad, wrong) for count, bad in [(3, 0), (3, 2), (96, 0), (96, 76), (384, 114)]),
    ],
)
def test_one_bad_layer_is_found_though_the_ranking_says_nothing_or_is_wrong(
    count: int, bad: int, error: Callable[[Held], float]
) -> None:
    outcome = auto(count, sums(damage(count, {bad: 0.5})), error=error)
    assert outcome.changed() == {f"l{bad}": FLOAT}


def test_a_model_of_one_layer_gets_the_most_accurate_raised_scheme() -> None:
    outcome = auto(1, sums({"l0": 0.5}, {GROUPS: 0.5, BLOCKS: 0.1, HALF: 0.001}))
    assert outcome.changed() == {"l0": HALF}
    assert len(outcome.trials) == 2


@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize("count", SIZES[1:])
def test_three_bad_layers_are_changed_and_no_other(count: int, raised: bool) -> None:
    bad = {1: 0.5, count // 2: 0.1, count - 2: 0.03}
    outcome = auto(count, sums(damage(count, bad), {BLOCKS: 1e-3} if raised else {}))
    assert outcome.changed() == {f"l{at}": BLOCKS if raised else FLOAT for at in bad}
    assert raised or len(outcome.trials) == 3  # and the one that shows that two are not enough


def test_only_those_are_raised_that_can_be() -> None:
    """Half floats are no use to the worst of three; the two others can have them."""

    def loss(held: Held) -> float:
        bad = {"l0": 0.5, "l1": 0.02, "l2": 0.02}
        cured = {n for n, s in held.items() if s == HALF and n != "l0"}
        return math.fsum(d for n, d in bad.items() if n in held and n not in cured)

    outcome = auto(12, loss)
    assert outcome.changed() == {"l0": FLOAT, "l1": HALF, "l2": HALF}


@pytest.mark.parametrize(
    ("count", "pair"), [(12, (0, 1)), (12, (10, 11)), (96, (3, 11)), (96, (0, 11))]
)
def test_of_two_layers_that_are_bad_only_together_one_is_changed(
    count: int, pair: tuple[int, int]
) -> None:
    a, b = (f"l{at}" for at in pair)
    alone = sums(damage(count, {}))
    outcome = auto(count, lambda held: alone(held) + (0.4 if a in held and b in held else 0.0))
    assert outcome.best.meets
    assert list(outcome.changed().values()) == [FLOAT]
    assert set(outcome.changed()) <= {a, b}


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("count", "share"), [*itertools.product([12, 96], [1.1, 1.5, 2.0, 5.0]), (384, 1.5)]
)
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_even_damage_leaves_the_least_number_float(count: int, share: float, power: float) -> None:
    """The accuracy lost is some power of the output's error, which the search does not know."""
    total = sums({f"l{at}": share / count for at in range(count)})
    outcome = auto(count, lambda held: BOUND * total(held) ** power, total, raised=())
    allowed = math.floor(count / share + 1e-9)
    assert outcome.best.meets
    assert len(outcome.changed()) == count - allowed


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(20))
def test_uneven_damage_is_met_with_as_few_float_layers_as_by_trying_all(seed: int) -> None:
    draw = random.Random(seed)
    each = {f"l{at}": draw.lognormvariate(0, 1) for at in range(12)}
    scale = draw.uniform(1.2, 8) * BOUND / sum(each.values())
    loss = sums({name: scale * value for name, value in each.items()})
    subsets = (
        names for size in range(13) for names in itertools.combinations(each, size)
    )  # of layers left float
    least = next(
        len(names)
        for names in subsets
        if loss({n: Scheme() for n in each if n not in names}) <= BOUND
    )
    assert len(auto(12, loss, raised=()).changed()) == least


@pytest.mark.parametrize("count", [12, 96])
def test_even_damage_is_met_by_raising_a_few_more_layers_than_would_be_float(count: int) -> None:
    total = sums({f"l{at}": 1.5 * BOUND / count for at in range(count)}, {BLOCKS: 0.05})
    outcome = auto(count, total)
    changed = outcome.changed()
    assert outcome.best.meets
    assert set(changed.values()) == {BLOCKS}
    assert count // 3 < len(changed) <= count // 3 + 3


def test_all_layers_are_raised_where_leaving_some_float_is_not_enough() -> None:
    total = sums({f"l{at}": 2 * BOUND for at in range(12)}, {BLOCKS: 0.02, GROUPS: 0.9})
    outcome = auto(12, total)
    assert outcome.changed() == {f"l{at}": BLOCKS for at in range(12)}


def test_trials_that_fail_count_as_not_met() -> None:
    """The evaluation breaks as long as layer 5 is quantized."""
    harmless = sums(damage(12, {}))

    def loss(held: Held) -> float:
        if "l5" in held:
            raise ArithmeticError("no result")
        return harmless(held)

    broken = {"l5": 1.0, "l2": 0.9}
    outcome = auto(12, loss, error=sums(broken))
    assert outcome.best.meets
    assert outcome.changed() == {"l5": FLOAT}


def test_an_output_that_is_not_finite_ranks_first() -> None:
    each = sums(damage(12, {4: 0.5}))
    outcome = auto(12, each, error=lambda held: math.nan if "l4" in held else each(held))
    assert next(iter(outcome.context.ranking)) == "l4"
    assert outcome.changed() == {"l4": FLOAT}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(10))
def test_noise_in_the_accuracy_leaves_a_recipe_that_was_measured_to_meet(seed: int) -> None:
    each = sums({f"l{at}": 2 * BOUND / 96 for at in range(96)})
    outcome = auto(96, noisy(each, 0.2 * BOUND, seed), error=each)
    assert outcome.best.meets
    assert len(outcome.changed()) < 75  # without noise 48


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 40), seed=st.integers(0, 10**6), fails=st.booleans())
def test_it_always_ends_within_the_bound_and_repeats_nothing(
    count: int, seed: int, fails: bool
) -> None:
    """Damage, what the output shows of it, noise and failures: all at random."""
    draw = random.Random(seed)
    shares = {scheme: draw.random() for scheme in RAISED}
    each = {f"l{at}": 0.05 * draw.random() ** draw.choice([1, 20]) for at in range(count)}
    seen = {f"l{at}": draw.random() for at in range(count)}
    measured = noisy(sums(each, shares), draw.choice([0, 0.02]), seed)

    def loss(held: Held) -> float:
        value = measured(held)
        if fails and value > 0.1 * draw.random():
            raise ArithmeticError("no result")
        return value

    auto(count, loss, error=draw.choice([sums(each, shares), sums(seen), lambda held: math.inf]))


def test_it_can_be_stopped_at_any_trial_and_goes_on_from_there() -> None:
    total = sums({f"l{at}": 2 * BOUND / 12 for at in range(12)}, {BLOCKS: 0.3})

    def context() -> Simulated:
        return Simulated(space_of(12), lambda held: total(held) ** 2 / BOUND, total)

    whole = drive(Auto(), context())
    assert len(whole.trials) > 5
    for most in range(1, len(whole.trials)):
        part = drive(Auto(), context(), most)
        assert part.candidates == whole.candidates[:most]
        resumed = drive(Auto(), context(), recorded=part.trials)
        assert resumed.candidates == whole.candidates


def kinds() -> Space:
    base = preset("int8").with_rules_first()
    model = [layer(f"l{at}") for at in range(6)]
    model += [layer(f"e{at}", Kind.EMBEDDING) for at in range(2)]
    model += [layer("r", Kind.LSTM)]
    return Space.of(plan(model, base), base, raised=RAISED)


def floats(candidate: Candidate) -> set[str]:
    return {str(r.name)[0] for r in candidate.recipe.rules if r.scheme.is_float and r.name}


def surveying(costly: set[str], gain: float = 0.2, **more: object) -> Simulated:
    def ratios(candidate: Candidate) -> tuple[float, float]:
        high = 1.02 - gain * len(floats(candidate) & costly)
        return high - 0.04, high

    return Simulated(kinds(), lambda held: 0.0, timed=True, ratios=ratios, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("costly", "gain", "changed"),
    [
        ("e", 0.2, ["e0", "e1"]),
        ("e", 0.1, []),  # a lookup is given up for more than a tenth of the time alone
        ("r", 0.1, ["r"]),
        ("", 0.2, []),  # without any kind the quartiles are 0.98 and 1.02 of the time with it
    ],
)
def test_a_kind_that_costs_time_starts_float(costly: str, gain: float, changed: list[str]) -> None:
    outcome = drive(Auto(), surveying({*costly}, gain))
    assert outcome.changed() == dict.fromkeys(changed, FLOAT)
    assert len(outcome.trials) == 1


def test_one_kind_stays_quantized_though_all_cost_time() -> None:
    changed = drive(Auto(), surveying({"e", "l", "r"})).changed()
    assert len({name[0] for name in changed}) == 2


@pytest.mark.parametrize("timed", [False, True])
def test_no_survey_without_need(timed: bool) -> None:
    context = surveying({"e"})
    context.timed = timed
    if timed:
        context.space = space_of(4)  # one kind
    drive(Auto(), context)
    assert context.timings == 0


def test_the_search_goes_on_from_the_surveyed_start() -> None:
    context = surveying({"e"})
    context.loss = sums({"l3": 0.5, "e0": 0.5})
    outcome = drive(Auto(), context)
    assert outcome.changed() == {"e0": FLOAT, "e1": FLOAT, "l3": FLOAT}
    assert set(context.ranking) == {*(f"l{at}" for at in range(6)), "r"}


def test_it_goes_on_until_everything_was_tried() -> None:
    outcome = auto(3, sums({"l0": 0.5}, {BLOCKS: 1e-3}), keeps_going=True)
    assert outcome.ended
    assert len(outcome.trials) == 5**3 - 1  # all but the float model
    assert outcome.changed() == {"l0": BLOCKS}


def test_it_gives_back_layers_that_need_not_have_been_changed() -> None:
    """The output shows nothing, and only layers 9 and 3 do harm."""
    loss = sums({"l9": 0.5, "l3": 0.5})
    how = {"error": lambda held: 0.1 * len(held), "raised": ()}
    assert len(auto(12, loss, **how).changed()) > 2
    longer = auto(12, loss, **how, keeps_going=True, most=40)
    assert longer.changed() == {"l3": FLOAT, "l9": FLOAT}


def test_the_same_seed_gives_the_same_neighbours_and_another_seed_others() -> None:
    def words(seed: int) -> list[str]:
        outcome = auto(12, lambda held: 0.0, keeps_going=True, most=30, seed=seed)
        return [candidate.description for candidate in outcome.candidates]

    assert words(1) == words(1) != words(2)
