"""Ranks the layers once, then searches how many of the worst must leave their scheme.

The evaluations grow with the logarithm of the number of layers. They are

0. where there are several recipes to start from: each of them that may win (`starts`).
1. the recipe as it is; where the objective is timed, without the kinds that cost time (`ranking`).
2. prefixes of the ranking left float (of a recipe with 4 bits: held in 8): a first guess from a
   gap in the ranking, or from the loss; from there steps of growing size until one prefix meets
   the criterion and one does not, then halves of what lies between. A prefix whose last layer
   alone is to blame is reduced to it.
3. refinements, while evaluations are left: a raised scheme for the layers left float, or for all
   layers where no prefix helps; layers given back. These are chosen by the output's error, which
   costs a run of the model and no evaluation. It never stands in for one.

Accuracy is taken to fall as more layers are quantized. Where it does not, the result is still
a recipe that was evaluated, but perhaps not the smallest change.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence

from octavo.core.qparams import QType
from octavo.recipe import FLOAT, Scheme
from octavo.results.tuning import Trial
from octavo.tune.ranking import (
    gap_position,
    leave_slow_kinds_float,
    proportional_count,
    rank_layers,
)
from octavo.tune.search import Candidate, SearchContext, Steps
from octavo.tune.space import LayerChoice, Space
from octavo.tune.starts import Start, choose_start
from octavo.tune.trial_memory import BATCH, Assignment, TrialMemory

CHANGES = (1, 1, 1, 2, 3)  # layers that a random neighbour changes, one of these
MISSES = 500  # neighbours in a row that were tried already: there are no others


def most_evaluations(layers: int) -> int:
    """Return the bound on the evaluations of a space of `layers` layers: 2 + 2 log2(layers)."""
    return 2 + int(2 * math.log2(max(layers, 1)))


class Auto:
    """Octavo's own strategy; see the module."""

    name = "auto"
    converges = True

    def search(self, context: SearchContext) -> Steps:
        """Yield trials: at most one for each recipe to start from, then some of layers.

        Of the layers of one recipe there are at most `most_evaluations`, without bound where the
        search keeps going.
        """
        chosen = yield from choose_start(context)
        context.space = chosen.space
        tried = TrialMemory(context, most_evaluations(len(context.space.quantized)))
        start = leave_slow_kinds_float(context)
        sensitivities: dict[str, float] = {}
        if not (yield from tried.meets(start)):
            names = [c.layer.name for c in context.space.quantized if c.layer.name not in start]
            sensitivities = rank_layers(context, names) if names else {}
            score = None if chosen.met_trial is None else chosen.met_trial.score
            yield from _Repair(tried, start, sensitivities, score).steps()
        if context.keeps_going:
            tried.limit = None
            if chosen.met is not None and not _is_better(context, tried, chosen):
                context.space = chosen.met
                tried = TrialMemory(context)
                yield from tried.ask([{}])
            yield from improve_best(tried, sensitivities)


def _is_better(context: SearchContext, tried: TrialMemory, start: Start) -> bool:
    """Tell whether the layers gave a better recipe than the whole one that met the criterion."""
    best, other = tried.best_trial, start.met_trial
    return best is not None and (other is None or context.better(best, other))


class _Repair:
    """From a start that fails to the smallest change of it that meets the criterion.

    `score` is that of a recipe that met it already, so that a worse one is of no use.
    """

    def __init__(
        self,
        tried: TrialMemory,
        start: Assignment,
        sensitivities: dict[str, float],
        score: float | None,
    ) -> None:
        self.score = math.inf if score is None else score
        self.tried = tried
        self.start = start
        self.sensitivities = sensitivities
        self.order = list(sensitivities)  # the worst first
        self.choices = {c.layer.name: c for c in tried.context.space.choices}
        self.fallback = _fallback(tried.context.space)

    def steps(self) -> Steps:
        errors = list(self.sensitivities.values())
        gap = gap_position(errors)
        guess = gap or proportional_count(errors, self.tried.best_trial, self.tried.context.bound)
        count = yield from self._smallest(guess, self.fallback)
        if self._cannot_win():
            return
        # One layer to blame that is not the worst of the ranking: all before it are innocent. So
        # it is where no prefix helps, and the last layer alone does harm. A gap that was right
        # says that the ranking can be believed.
        if len(self.order) > 1 and count != 1 and (count is None or count != gap):
            last = self.order[(count or 0) - 1]
            yield from self.tried.meets(self._held_as(self.start, [last], self.fallback))
        if self.tried.met:
            if self.fallback.is_float:
                yield from self._raise(spread=count != gap)
        else:
            yield from self._raise_all()
        if self.tried.met:
            yield from self._give_back()

    def _smallest(
        self, guess: int, scheme: Scheme
    ) -> Generator[Sequence[Candidate], Sequence[Trial], int | None]:
        """Find the length of the shortest prefix that meets the criterion with `scheme`.

        None where all but one of the layers are too few.
        """
        low, high = 0, len(self.order)  # none failed; all need no trial, or had one
        step, count = 1, min(guess, high - 1)
        before, turned = None, False
        while high - low > 1 and self.tried.left and not self._cannot_win():
            met = yield from self.tried.meets(self._prefix(count, scheme))
            low, high = (low, count) if met else (count, high)
            turned = turned or before not in (None, met)
            if turned:
                count = (low + high) // 2
            else:
                count = max(low + 1, count - step) if met else min(high - 1, count + step)
            before, step = met, 2 * step
        return high if high < len(self.order) else None

    def _cannot_win(self) -> bool:
        """Tell whether a trial that missed is no better than the recipe that met the criterion.

        Trials that change more layers are worse still.
        """
        trials = self.tried.trials.values()
        return any(not t.meets and (t.score or 0.0) >= self.score for t in trials)

    def _prefix(self, count: int, scheme: Scheme) -> Assignment:
        """Return the start with the worst `count` layers held as `scheme`."""
        return self._held_as(self.start, self.order[:count], scheme)

    def _held_as(self, base: Assignment, names: Sequence[str], scheme: Scheme) -> Assignment:
        """Return `base` with `names` held as `scheme`, in float those that cannot be so held."""
        schemes = {n: scheme if scheme in self.choices[n].schemes else FLOAT for n in names}
        return {**base, **schemes}

    def _raise(self, spread: bool) -> Steps:
        """Try schemes between a layer's own and float for the layers left float.

        Where the damage is `spread`, the schemes are tried for more layers than these, too; if
        nothing improves, for the half of them that does less harm.
        """
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
        """Return the shortest prefix beyond `count` whose output, held as `rung`, is near float.

        Near is as near to the float model's output as in a trial that met the criterion. All layers
        are returned if no prefix is.
        """
        lengths = range(count + 1, len(self.order))
        allowed = self.tried.largest_met
        at = bisect_left(
            lengths, True, key=lambda n: self.tried.proxy(self._prefix(n, rung)) <= allowed
        )
        return self._prefix(count + 1 + at, rung)

    def _improves(
        self, variant: Assignment
    ) -> Generator[Sequence[Candidate], Sequence[Trial], bool]:
        """Tell whether `variant` is promising, and the best so far when it is tried."""
        before = self.tried.best_trial
        if not self.tried.knows(variant) and self.tried.promising(variant):
            yield from self.tried.ask([variant])
        return self.tried.best_trial is not before

    def _raise_all(self) -> Steps:
        """Try raised schemes for every layer, the fastest first, then for as few layers as will do.

        Where there are not evaluations enough for all schemes, the most accurate ones are tried.
        """
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
        for choice in least_harmful_first(changed, self.sensitivities)[:few]:
            variant = {**self.tried.best, choice.layer.name: choice.own}
            if not self.tried.knows(variant) and not self.tried.hopeless(variant):
                yield from self.tried.ask([variant])

    def _members(self) -> list[str]:
        """List the layers that the best assignment changes beyond the start, the worst first."""
        return [name for name in self.order if name in self.tried.best]

    def _rungs(self, names: Sequence[str]) -> list[Scheme]:
        """List the schemes that any of `names` can be raised to, the fastest first."""
        rungs: dict[Scheme, None] = {}
        for name in names:
            rungs.update(dict.fromkeys(self.choices[name].intermediate_schemes))
        return list(rungs)


def _fallback(space: Space) -> Scheme:
    """Return what a layer to blame becomes: float, or 8 bits first where the recipe has 4."""
    weight = space.base.default.weight
    return Scheme() if weight is not None and weight.qtype is QType.INT4 else FLOAT


# --- after its end: better recipes near the best one, for as long as there is time ---


def improve_best(tried: TrialMemory, sensitivities: Mapping[str, float]) -> Steps:
    """Give layers of the best recipe back one at a time, then try its random neighbours.

    The search ends where all neighbours were tried. Layers without a sensitivity are not given
    back.
    """
    if tried.met:
        yield from _give_back(tried, sensitivities)
    draw = random.Random(tried.context.seed)
    while batch := _neighbours(tried, draw):
        yield from tried.ask(batch)


def _give_back(tried: TrialMemory, sensitivities: Mapping[str, float]) -> Steps:
    moved = True
    while moved:
        moved = False
        for move in _moves(tried, sensitivities):
            before = tried.best_trial
            yield from tried.ask([move])
            if tried.best_trial is not before:
                moved = True
                break


def _moves(tried: TrialMemory, sensitivities: Mapping[str, float]) -> Iterator[Assignment]:
    """Yield the best assignment with one layer nearer to the recipe's scheme, likeliest first."""
    best = dict(tried.best)
    changed = [
        c for c in tried.context.space.choices if c.layer.name in best.keys() & sensitivities
    ]
    for choice in least_harmful_first(changed, sensitivities):
        name = choice.layer.name
        below = choice.schemes[: choice.schemes.index(best[name])]
        for scheme in below:
            move = {**best, name: scheme}
            if not tried.knows(move):
                yield move


def least_harmful_first(
    choices: list[LayerChoice], sensitivities: Mapping[str, float]
) -> list[LayerChoice]:
    """Put choices that harm the output least first, of equals those that compute and hold most."""
    return sorted(
        choices,
        key=lambda c: (
            sensitivities.get(c.layer.name, 0.0),
            -(c.layer.macs_per_row or 0),
            -c.layer.bytes,
        ),
    )


def _neighbours(tried: TrialMemory, draw: random.Random) -> list[Assignment]:
    """Up to BATCH new neighbours of the best assignment; none where all were tried."""
    found: list[Assignment] = []
    keys = set()
    misses = 0
    while len(found) < BATCH and misses < MISSES:
        near = _neighbour(tried, draw)
        key = tried.key(near)
        if key in keys or tried.knows(near) or not tried.context.space.quantized_layers(near):
            misses += 1
            continue
        keys.add(key)
        found.append(near)
    return found


def _neighbour(tried: TrialMemory, draw: random.Random) -> Assignment:
    choices = tried.context.space.choices
    near: dict[str, Scheme] = dict(tried.best)
    for choice in draw.sample(choices, min(draw.choice(CHANGES), len(choices))):
        near[choice.layer.name] = draw.choice(choice.schemes)
    return near
