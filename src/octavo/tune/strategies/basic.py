"""Neural Compressor's way: whole models first, then each layer alone, then their sum.

1. the recipe as it is, then each other scheme given to all layers that can have it;
2. from the best of these: each layer alone left float;
3. from there: layers left float together, those that gained most alone first, one more each time.

Stages 2 and 3 take a trial for each layer. Where that is more than `max_trials` leaves room for,
groups of consecutive layers take the place of single ones, so that stage 3 is always reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from octavo.recipe import FLOAT, Scheme
from octavo.results.tuning import Trial
from octavo.tune.search import Ground, Steps
from octavo.tune.space import Space
from octavo.tune.strategies._batches import batches, groups
from octavo.tune.strategies._tried import Assignment, Tried


class Basic:
    """One by one, then together; see the module."""

    name = "basic"
    converges = False

    def search(self, ground: Ground) -> Steps:
        """Twice the number of layers in trials, or fewer with groups of them."""
        tried = Tried(ground)
        yield from tried.ask([{}])
        for batch in batches(_whole_models(ground.space)):
            yield from tried.ask(batch)
        start = tried.best
        units = _units(ground.space, start, ground.max_trials - len(tried.trials))
        alone: list[Trial | None] = []
        for batch in batches([_left_float(start, [unit]) for unit in units]):
            alone += yield from tried.ask(batch)
        order = sorted(range(len(units)), key=lambda at: _loss(alone[at]))
        falls = [
            _left_float(start, [units[at] for at in order[:count]])
            for count in range(2, len(units))
        ]
        for batch in batches(falls):
            yield from tried.ask(batch)


def _whole_models(space: Space) -> list[Assignment]:
    """Each scheme beside the recipe's own and float, for every layer that can have it."""
    rungs = dict.fromkeys(rung for choice in space.choices for rung in choice.rungs)
    return [{c.layer.name: rung for c in space.choices if rung in c.rungs} for rung in rungs]


def _units(space: Space, start: Assignment, trials: int) -> list[list[str]]:
    """The layers that `start` quantizes, each alone; in groups where there are more than half of
    `trials`."""
    held = space.held(start)
    names = [c.layer.name for c in space.choices if c.layer.name in held]
    return groups(names, min(len(names), max(2, trials // 2)))


def _left_float(start: Assignment, units: Sequence[Sequence[str]]) -> Assignment:
    together: dict[str, Scheme] = dict(start)
    for unit in units:
        together.update(dict.fromkeys(unit, FLOAT))
    return together


def _loss(trial: Trial | None) -> float:
    if trial is None or trial.loss is None or math.isnan(trial.loss):
        return math.inf
    return trial.loss
