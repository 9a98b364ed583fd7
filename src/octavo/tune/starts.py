"""From which whole recipe a search by layers starts: presets are tried before layers are.

What the objective says of them is measured without an evaluation. They are evaluated in its order,
the best first, up to the first that meets the criterion: those behind it cannot win. Not evaluated
either are recipes that are no better than the float model, and those whose output is hardly nearer
to the float model's than that of a recipe which failed to meet the criterion.

The search goes on from

- the recipe that met the criterion, where it was the first;
- else from the most accurate one of those before it that are better by more than chance: with a
  few layers changed it may meet the criterion, too;
- the most accurate of all, where none met it.

4 bits are mended with 8 bits for the layers to blame. So they are mended only where a recipe of
integers met the criterion as a whole.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from octavo.core.qparams import QType
from octavo.results.tuning import LeftOut, Trial
from octavo.tune.contest import is_smaller
from octavo.tune.goals import or_inf
from octavo.tune.search import Candidate, SearchContext
from octavo.tune.space import Space
from octavo.tune.trial_memory import NEAR

WHOLE = ("int8", "int8-accurate", "int8-block", "int8-per-tensor", "float16", "int4", "int4-128")
"""The presets that are tried. Among equally good ones the first is taken.

int4-mixed is none of them: a search that starts from int4 gives more bits to the layers that need
them, and measures which these are.
"""


CLEARLY = 0.8
"""Of the float model's time or size: less is a gain, however wide the interval."""


@dataclass(frozen=True)
class Start:
    """Where a search by layers starts; `met` is another recipe that met the criterion."""

    space: Space
    met: Space | None = None
    met_trial: Trial | None = None


def choose_start(
    context: SearchContext,
) -> Generator[Sequence[Candidate], Sequence[Trial], Start]:
    """Try the recipes of `context.starts`, as far as they can win; return where to start."""
    spaces = context.starts
    if len(spaces) == 1:
        return Start(spaces[0])
    tried = _Whole(context)
    yield from tried.evaluate()
    return tried.start()


@dataclass
class _Whole:
    """Whole recipes, by their place in `context.starts`."""

    context: SearchContext
    trials: dict[int, Trial] = field(default_factory=dict)
    hopeless: list[int] = field(default_factory=list)
    _errors: dict[int, float] = field(default_factory=dict)

    def evaluate(self) -> Generator[Sequence[Candidate], Sequence[Trial], None]:
        candidates = [space.candidate({}) for space in self.context.starts]
        if self.context.needs_accuracy:
            trials = yield candidates
            self.trials = dict(enumerate(trials))
            return
        outlook = self.context.appraise(candidates)
        order = self._order(outlook)
        for at, trial in enumerate(outlook):
            if at not in order and not trial.failed:
                self.context.leave_out(candidates[at], LeftOut.NO_GAIN)
        for place, at in enumerate(order):
            if self._hopeless(at):
                self.hopeless.append(at)
                self.context.leave_out(candidates[at], LeftOut.NO_NEARER)
                continue
            (self.trials[at],) = yield [candidates[at]]
            if self.trials[at].meets:
                for behind in order[place + 1 :]:
                    self.context.leave_out(candidates[behind], LeftOut.BEHIND)
                return

    def _order(self, outlook: Sequence[Trial]) -> list[int]:
        """Order the recipes, the best first.

        Of those that differ by chance alone the smallest comes first, then the one that is named
        first.

        Behind them, as they are named, come those that there was no time to time.
        """
        able = [at for at, trial in enumerate(outlook) if not trial.failed]
        untimed = [at for at in able if outlook[at].score is None]
        pays = self._is_not_slower if untimed else self._pays
        left, order = [at for at in able if at not in untimed and pays(outlook[at])], []
        while left:
            leader = min(left, key=lambda at: or_inf(outlook[at].score))
            equal = [at for at in left if not self.context.beats(outlook[leader], outlook[at])]
            equal = [leader, *equal]
            order.append(min(at for at in equal if not _has_smaller(at, equal, outlook)))
            left.remove(order[-1])
        return [*order, *untimed] or able[:1]

    def _is_not_slower(self, trial: Trial) -> bool:
        """Tell whether the float model is not known to be better."""
        return not self.context.beats(self.context.baseline, trial)

    def _pays(self, trial: Trial) -> bool:
        """Tell whether it is better than the float model, by more than chance or by much."""
        return or_inf(trial.score) < CLEARLY or self.context.beats(trial, self.context.baseline)

    # docs/notes/tuning.md: "What is hardly nearer fails too"
    def _hopeless(self, at: int) -> bool:
        """Tell whether the output is hardly nearer the float model's than where a trial missed."""
        missed = [n for n, trial in self.trials.items() if not trial.failed]
        return bool(missed) and self._error(at) > min(map(self._error, missed)) / NEAR

    def _error(self, at: int) -> float:
        if at not in self._errors:
            space = self.context.starts[at]
            layers = [choice.layer.name for choice in space.quantized]
            (self._errors[at],) = self.context.errors(space.base, [layers])
        return self._errors[at]

    def start(self) -> Start:
        """Choose from the trials where the search goes on: see the module."""
        spaces = self.context.starts
        ended = {at: trial for at, trial in self.trials.items() if not trial.failed}
        missed = [at for at, trial in ended.items() if not trial.meets]
        met = [at for at, trial in ended.items() if trial.meets]
        if not met:
            return Start(spaces[self._to_mend(missed, [])])
        best = met[0]
        for at in met[1:]:
            best = at if self.context.better(ended[at], ended[best]) else best
        ahead = [at for at in missed if self.context.beats(ended[at], ended[best])]
        if not ahead:
            return Start(spaces[best])
        return Start(spaces[self._to_mend(ahead, [best])], spaces[best], ended[best])

    def _to_mend(self, missed: Sequence[int], met: Sequence[int]) -> int:
        """Choose the recipe to mend: the nearest of those that `missed`.

        One of 4 bits is chosen only where integers met, as layers that are to blame get 8 of them.
        Else the nearest of 8 bits is chosen, though that recipe was not evaluated.
        """
        if any(_bits(self.context.starts[at]) <= 8 for at in met):
            return self._nearest(missed)
        with_8 = [at for at in missed if _bits(self.context.starts[at]) == 8]
        if with_8:
            return self._nearest(with_8)
        return next((at for at in self.hopeless if _bits(self.context.starts[at]) == 8), 0)

    def _nearest(self, places: Sequence[int]) -> int:
        return min(places, key=lambda at: (or_inf(self.trials[at].loss), at))


def _has_smaller(at: int, others: Sequence[int], outlook: Sequence[Trial]) -> bool:
    return any(is_smaller(outlook[other], outlook[at]) for other in others)


def _bits(space: Space) -> int:
    weight = space.base.default.weight
    assert weight is not None
    return 4 if weight.qtype is QType.INT4 else 8 if weight.qtype.is_integer else 16
