"""Ranks the layers once, then searches how many of the worst must leave their scheme.

The evaluations grow with the logarithm of the number of layers. They are

1. the recipe as it is; where the objective is timed, without the kinds that cost time (`_survey`).
2. prefixes of the ranking left float: a first guess from a gap in the ranking, or from the loss;
   from there steps of growing size until one prefix meets the criterion and one does not, then
   halves of what lies between. A prefix whose last layer alone is to blame is reduced to it.
3. refinements, while evaluations are left: a raised scheme for the layers left float, or for all
   layers where no prefix helps; layers given back. These are chosen by the output's error, which
   costs a run of the model and no evaluation. It never stands in for one.

Accuracy is taken to fall as more layers are quantized. Where it does not, the result is still
a recipe that was evaluated, but perhaps not the smallest change.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator, Sequence

from octavo.recipe import FLOAT, Scheme
from octavo.results.tuning import Trial
from octavo.tune.search import Candidate, Ground, Steps
from octavo.tune.strategies._beyond import by_promise, go_on
from octavo.tune.strategies._ranking import pronounced_gap, proportional, ranked
from octavo.tune.strategies._survey import surveyed
from octavo.tune.strategies._tried import Assignment, Tried


def most_evaluations(layers: int) -> int:
    """The bound on the evaluations of a space of `layers` layers: 2 + 2 log2(layers)."""
    return 2 + int(2 * math.log2(max(layers, 1)))


class Auto:
    """Octavo's own way; see the module."""

    name = "auto"
    converges = True

    def search(self, ground: Ground) -> Steps:
        """At most `most_evaluations` trials, and without bound where the search keeps going."""
        tried = Tried(ground, most_evaluations(len(ground.space.quantized)))
        start = surveyed(ground)
        sensitivities: dict[str, float] = {}
        if not (yield from tried.meets(start)):
            names = [c.layer.name for c in ground.space.quantized if c.layer.name not in start]
            sensitivities = ranked(ground, names) if names else {}
            yield from _Repair(tried, start, sensitivities).steps()
        if ground.keeps_going:
            tried.limit = None
            yield from go_on(tried, sensitivities)


class _Repair:
    """From a start that fails to the smallest change of it that meets the criterion."""

    def __init__(self, tried: Tried, start: Assignment, sensitivities: dict[str, float]) -> None:
        self.tried = tried
        self.start = start
        self.sensitivities = sensitivities
        self.order = list(sensitivities)  # the worst first
        self.choices = {c.layer.name: c for c in tried.ground.space.choices}

    def steps(self) -> Steps:
        errors = list(self.sensitivities.values())
        gap = pronounced_gap(errors)
        guess = gap or proportional(errors, self.tried.best_trial, self.tried.ground.bound)
        count = yield from self._smallest(guess, FLOAT)
        # One layer to blame that is not the worst of the ranking: all before it are innocent. So
        # it is where no prefix helps, and the last layer alone does harm. A gap that was right
        # says that the ranking can be believed.
        if len(self.order) > 1 and count != 1 and (count is None or count != gap):
            last = self.order[(count or 0) - 1]
            yield from self.tried.meets({**self.start, last: FLOAT})
        if self.tried.met:
            yield from self._raise(spread=count != gap)
        else:
            yield from self._raise_all()
        if self.tried.met:
            yield from self._give_back()

    def _smallest(
        self, guess: int, scheme: Scheme
    ) -> Generator[Sequence[Candidate], Sequence[Trial], int | None]:
        """The length of the shortest prefix that meets the criterion with `scheme`; None where
        all but one of the layers are too few."""
        low, high = 0, len(self.order)  # none failed; all need no trial, or had one
        step, count = 1, min(guess, high - 1)
        before, turned = None, False
        while high - low > 1 and self.tried.left:
            met = yield from self.tried.meets(self._prefix(count, scheme))
            low, high = (low, count) if met else (count, high)
            turned = turned or before not in (None, met)
            if turned:
                count = (low + high) // 2
            else:
                count = max(low + 1, count - step) if met else min(high - 1, count + step)
            before, step = met, 2 * step
        return high if high < len(self.order) else None

    def _prefix(self, count: int, scheme: Scheme) -> Assignment:
        """The start with the worst `count` layers held as `scheme`."""
        return self._held_as(self.start, self.order[:count], scheme)

    def _held_as(self, base: Assignment, names: Sequence[str], scheme: Scheme) -> Assignment:
        """`base` with `names` held as `scheme`, those that cannot be so in float."""
        schemes = {n: scheme if scheme in self.choices[n].schemes else FLOAT for n in names}
        return {**base, **schemes}

    def _raise(self, spread: bool) -> Steps:
        """A scheme between their own and float for the layers left float; where the damage is
        `spread`, for more layers than these; else for the half of them that does less harm."""
        members = self._members()
        for rung in self._rungs(members):
            if (yield from self._improves(self._held_as(self.tried.best, members, rung))):
                return
            wider = self._longer(len(members), rung) if spread and len(members) > 1 else None
            if wider and (yield from self._improves(wider)):
                return
        half = members[len(members) // 2 :]
        for rung in self._rungs(half):
            if (yield from self._improves(self._held_as(self.tried.best, half, rung))):
                return

    def _longer(self, count: int, rung: Scheme) -> Assignment:
        """The shortest prefix longer than `count` that, held as `rung`, leaves the output as near
        to the float model's as in a trial that met the criterion; all layers if there is none."""
        lengths = range(count + 1, len(self.order))
        allowed = self.tried.largest_met
        at = bisect_left(
            lengths, True, key=lambda n: self.tried.proxy(self._prefix(n, rung)) <= allowed
        )
        return self._prefix(count + 1 + at, rung)

    def _improves(
        self, variant: Assignment
    ) -> Generator[Sequence[Candidate], Sequence[Trial], bool]:
        """Whether `variant` is promising, and the best so far when it is tried."""
        before = self.tried.best_trial
        if not self.tried.knows(variant) and self.tried.promising(variant):
            yield from self.tried.ask([variant])
        return self.tried.best_trial is not before

    def _raise_all(self) -> Steps:
        """Raised schemes for every layer, the fastest first; the most accurate where there are not
        evaluations enough for all. Then for as few as will do."""
        whole = {rung: self._prefix(len(self.order), rung) for rung in self._rungs(self.order)}
        room = int(min(self.tried.left, len(whole)))
        chosen = sorted(whole, key=lambda rung: self.tried.proxy(whole[rung]))[:room]
        for rung, variant in whole.items():
            if rung in chosen and (yield from self.tried.meets(variant)):
                yield from self._smallest(len(self.order) // 2, rung)
                return

    def _give_back(self) -> Steps:
        """Layers back to their own scheme, the harmless first, where the output allows it.

        Only so many are looked at that the runs of the model stay few.
        """
        changed = [self.choices[name] for name in self._members()]
        few = 1 + int(math.log2(len(self.order)))
        for choice in by_promise(changed, self.sensitivities)[:few]:
            variant = {**self.tried.best, choice.layer.name: choice.own}
            if not self.tried.knows(variant) and not self.tried.hopeless(variant):
                yield from self.tried.ask([variant])

    def _members(self) -> list[str]:
        """The layers that the best assignment changes beyond the start, the worst first."""
        return [name for name in self.order if name in self.tried.best]

    def _rungs(self, names: Sequence[str]) -> list[Scheme]:
        """What any of `names` can be raised to, the fastest first."""
        rungs: dict[Scheme, None] = {}
        for name in names:
            rungs.update(dict.fromkeys(self.choices[name].rungs))
        return list(rungs)
