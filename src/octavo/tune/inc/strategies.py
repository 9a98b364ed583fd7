"""Neural Compressor's strategies by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, product

from octavo.recipe import FLOAT, Scheme
from octavo.results.tuning import Trial
from octavo.tune.goals import or_inf
from octavo.tune.inc.optuna_search import Bayesian, Tpe
from octavo.tune.ranking import rank_layers
from octavo.tune.search import SearchContext, Steps, Strategy
from octavo.tune.space import Space
from octavo.tune.trial_memory import BATCH, Assignment, TrialMemory, batches, groups

SMALL = 4096  # assignments: so many are listed and shuffled, more are drawn one by one
MISSES = 20  # batches in a row that bring nothing new: what is left is taken in order


class Basic:
    """Whole models first, then each layer alone, then their sum.

    1. the recipe as it is, then each other scheme given to all layers that can have it;
    2. from the best of these: each layer alone left float;
    3. from there: layers left float together, those that gained most alone first, one more each
       time.

    Stages 2 and 3 take a trial for each layer. Where that is more than `max_trials` leaves room
    for, groups of consecutive layers take the place of single ones, so that stage 3 is always
    reached.
    """

    name = "basic"
    converges = False

    def search(self, context: SearchContext) -> Steps:
        """Twice the number of layers in trials, or fewer with groups of them."""
        tried = TrialMemory(context)
        yield from tried.ask([{}])
        yield from _all(tried, _whole_models(context.space))
        start = tried.best
        units = _units(context.space, start, context.max_trials - len(tried.trials))
        alone: list[Trial | None] = []
        for batch in batches([_left_float(start, [unit]) for unit in units]):
            alone += yield from tried.ask(batch)
        order = sorted(range(len(units)), key=lambda at: or_inf(getattr(alone[at], "loss", None)))
        counts = range(2, len(units))
        yield from _all(
            tried, (_left_float(start, [units[at] for at in order[:n]]) for n in counts)
        )


def _whole_models(space: Space) -> list[Assignment]:
    """Assign each scheme beside the recipe's own and float to every layer that can have it."""
    rungs = dict.fromkeys(rung for choice in space.choices for rung in choice.intermediate_schemes)
    return [
        {c.layer.name: rung for c in space.choices if rung in c.intermediate_schemes}
        for rung in rungs
    ]


def _units(space: Space, start: Assignment, trials: int) -> list[list[str]]:
    """List the layers that `start` quantizes, each in a list of its own.

    They are in groups where there are more layers than half of `trials`.
    """
    held = space.quantized_layers(start)
    names = [c.layer.name for c in space.choices if c.layer.name in held]
    return groups(names, min(len(names), max(2, trials // 2)))


def _left_float(start: Assignment, units: Sequence[Sequence[str]]) -> Assignment:
    together: dict[str, Scheme] = dict(start)
    for unit in units:
        together.update(dict.fromkeys(unit, FLOAT))
    return together


class Mse:
    """By the output's error when a layer alone is quantized, the worst first, each added to those
    before."""

    name = "mse"
    converges = False

    def search(self, context: SearchContext) -> Steps:
        """Yield as many trials as there are layers."""
        tried = TrialMemory(context)
        yield from tried.ask([{}])
        names = [choice.layer.name for choice in context.space.quantized]
        order = list(rank_layers(context, names)) if names else []
        yield from _all(tried, (dict.fromkeys(order[:n], FLOAT) for n in range(1, len(order))))


class Exhaustive:
    """Everything; nothing is made before its turn, so that a space of any size can be begun."""

    name = "exhaustive"
    converges = False

    def search(self, context: SearchContext) -> Steps:
        """Yield one trial for each assignment that quantizes a layer."""
        tried = TrialMemory(context)
        yield from tried.ask([{}])
        yield from _all(tried, assignments(context.space))


def _all(tried: TrialMemory, some: Iterable[Assignment]) -> Steps:
    for batch in batches(some):
        yield from tried.ask(batch)


def assignments(space: Space) -> Iterator[Assignment]:
    """Yield every assignment but the recipe itself."""
    for count in range(1, len(space.choices) + 1):
        for changed in combinations(space.choices, count):
            names = [choice.layer.name for choice in changed]
            for schemes in product(*(choice.schemes[1:] for choice in changed)):
                yield dict(zip(names, schemes, strict=True))


class Random:
    """The recipe itself, then draws without replacement, each scheme of a layer as likely."""

    name = "random"
    converges = False

    def search(self, context: SearchContext) -> Steps:
        """Yield one trial for each assignment that quantizes a layer, unless stopped before."""
        tried = TrialMemory(context)
        draw = random.Random(context.seed)
        yield from tried.ask([{}])
        space = context.space
        if space.size <= SMALL:
            everything = list(assignments(space))
            draw.shuffle(everything)
            yield from _all(tried, everything)
            return
        # Draws hardly ever meet again in a space of this size, unless most of it was seen.
        misses = 0
        while misses < MISSES:
            known = len(tried.trials)
            drawn = [
                {c.layer.name: draw.choice(c.schemes) for c in space.choices} for _ in range(BATCH)
            ]
            yield from tried.ask(drawn)
            misses = misses + 1 if len(tried.trials) == known else 0
        yield from _all(tried, assignments(space))


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    **{kind.name: kind for kind in (Basic, Mse, Random, Exhaustive)},
    "bayesian": Bayesian,
    "tpe": Tpe,
}
