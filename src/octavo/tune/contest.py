"""Trials timed in turns with one another, so that speed chooses among them and not luck.

A trial that is timed beside the float model alone has a figure good for a table. The best of many
such figures is too good, because what was lucky comes first. So whoever is to be chosen is timed
again: all in turns, opened afresh again and again. Where two do not differ, the smaller file wins,
and of two as large the simpler recipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.recipe.recipe import Origin
from octavo.results.benchmark import SMALLEST
from octavo.results.tuning import Trial
from octavo.tune.goals import or_inf
from octavo.tune.measurements import Measurements, TimeUpError

SECONDS = 10.0
"""What one comparison may take, where calls are short."""

ROUGHLY = 0.5
"""Of that, what it takes to know which of many are far behind."""

WIDE = 2.0  # the bounds of an interval beyond which it says nothing
FAR_BEHIND = 1.5  # times the best score
FINALISTS = 3  # of many

SMALLER = 0.95
"""Of another's bytes: less is a smaller file. Scales of channels are some hundredths of it."""

SHARE = 0.1
"""Of a search's time, what its last comparison may take."""

START = 0.15
"""Of the time that is left, what each comparison before the first evaluation may take."""

MOST = 4  # trials in one comparison at the end
ROUNDS = 2  # comparisons at the end: what comes second after the first may not have been timed

UNTIMED = "not all of the best trials could be timed again, in turns"

Interval = tuple[float, float, float]
"""A ratio of times, and the bounds of its 99% interval."""


class Contest:
    """The comparisons of one search; `seconds` for each."""

    def __init__(self, measuring: Measurements, seconds: float = SECONDS) -> None:
        self._measuring = measuring
        self._seconds = seconds
        self._pairs: dict[tuple[str, str], Interval] = {}

    def time_many(self, trials: Sequence[Trial]) -> list[Trial]:
        """Time `trials` in a short comparison, and the best of them in a long one.

        Where time is short, the first ones alone have times, or none.
        """
        doing = "timing whole recipes in turns"
        found = {t.key: t for t in self.time(trials, doing, self._seconds * ROUGHLY, START)}
        if any(t.score is None and not t.failed for t in found.values()):
            return [found[trial.key] for trial in trials]
        ranked = sorted((t for t in found.values() if t.score is not None), key=_score)
        near = [t for t in ranked if _score(t) <= FAR_BEHIND * _score(ranked[0])][:FINALISTS]
        if len(near) > 1:
            found.update({trial.key: trial for trial in self.time(near, doing, share=START)})
        return [found[trial.key] for trial in trials]

    def time(
        self,
        trials: Sequence[Trial],
        doing: str,
        seconds: float | None = None,
        share: float = 1.0,
    ) -> list[Trial]:
        """Time `trials` in one comparison; those that could not be made or run have an error.

        The others are as they were: there was no comparison, or no time for them. The comparison
        may take this `share` of the time that is left.
        """
        found = self._measuring.compared(trials, seconds or self._seconds, doing, share)
        keys = [self._measuring.baseline.key, *(trial.key for trial in trials)]
        for a, b, *interval in found["pairs"]:
            ratio, low, high = interval
            self._pairs[keys[a], keys[b]] = ratio, low, high
            self._pairs[keys[b], keys[a]] = 1 / ratio, 1 / high, 1 / low
        timed = []
        for trial, taken, size, error in zip(
            trials, found["seconds"][1:], found["bytes"][1:], found["errors"][1:], strict=True
        ):
            pair, one = self._pairs.get((keys[0], trial.key)), trial
            if error:
                one = replace(trial, error=error, score=None, meets=False, accuracy=None)
                self._measuring.timed_already.pop(trial.key, None)
            elif pair is not None and taken is not None:
                one = replace(
                    trial,
                    latency=taken,
                    float_latency=found["seconds"][0],
                    time_ratio=pair[0],
                    time_low=pair[1] if tells(pair) else None,
                    time_high=pair[2] if tells(pair) else None,
                    bytes=size,
                )
                one = replace(one, score=self._measuring.score(one))
                self._measuring.timed_already[trial.key] = one
            timed.append(one)
        return timed

    def beats(self, a: Trial, b: Trial) -> bool:
        """Tell whether the objective is better for `a` than for `b`, and that by more than chance.

        Who is far behind is beaten, however wide the interval: `time_many` times it no better.
        By their scores where the two were not timed in turns, or nothing is timed.
        """
        if a.score is None or b.score is None:
            return a.score is not None
        pair = self._pairs.get((b.key, a.key))
        if pair is None or b.time_ratio is None:
            return a.score < b.score
        ratio, _, high = (b.time_ratio * bound for bound in pair)
        middle, worst = (self._measuring.score(replace(a, time_ratio=x)) for x in (ratio, high))
        assert middle is not None
        assert worst is not None
        if middle * FAR_BEHIND <= b.score:
            return True
        return worst < b.score and middle <= b.score * (1 - SMALLEST)

    def settle(self, trials: Sequence[Trial]) -> tuple[list[Trial], Trial | None]:
        """Return `trials`, some of them timed again, and the one to choose.

        The choice is among those that meet the criterion; None where nothing is timed or there is
        no choice.

        One that can no longer be made or run has the error. Where the time is up, what was known by
        then chooses.
        """
        by_key = {trial.key: trial for trial in trials}
        chosen = None
        if not self._measuring.timed:
            return list(trials), None
        for _ in range(ROUNDS):
            met = [t for t in by_key.values() if t.meets and not t.failed and t.score is not None]
            if len(met) < 2:
                break
            some = contenders(met)
            if all((a.key, b.key) in self._pairs for a in some for b in some if a is not b):
                chosen = self._chosen(some)
                break
            try:
                again = self.time(some, "timing the best trials again, in turns")
            except TimeUpError:
                again = some
            by_key.update({trial.key: trial for trial in again})
            untimed = [one for one, was in zip(again, some, strict=True) if one is was]
            timed = [one for one in again if not one.failed and one not in untimed]
            if timed:
                chosen = self._chosen(timed)
            elif chosen is not None and by_key[chosen.key].failed:
                chosen = None
            if untimed:
                self._measuring.note(UNTIMED if chosen else f"{UNTIMED}: luck may have chosen")
                break
        return list(by_key.values()), chosen

    def _chosen(self, some: Sequence[Trial]) -> Trial:
        """Choose the smallest, then simplest of the trials that none beats by more than chance."""
        left = sorted(some, key=simplicity)
        while True:
            first, *others = left
            left = [trial for trial in others if self._precedes(trial, first)]
            if not left:
                return first

    def _precedes(self, a: Trial, simpler: Trial) -> bool:
        """Tell whether `a` is to be chosen rather than a simpler one."""
        tied = not self.beats(simpler, a)
        return self.beats(a, simpler) or (tied and is_smaller(a, simpler))


def is_smaller(a: Trial, b: Trial) -> bool:
    """Tell whether the file of `a` is smaller, by more than what scales take."""
    return a.bytes is not None and b.bytes is not None and a.bytes <= SMALLER * b.bytes


def _score(trial: Trial) -> float:
    return or_inf(trial.score)


def tells(pair: Interval) -> bool:
    """Tell whether an interval is narrow enough to be shown.

    Of two openings, an interval may be from 0 to 100.
    """
    _, low, high = pair
    return high < WIDE * low


def contenders(met: Sequence[Trial]) -> list[Trial]:
    """Return the trials with the best scores, and the simplest one."""
    best = sorted(met, key=lambda trial: (_score(trial), trial.index))[:MOST]
    simplest = min(met, key=simplicity)
    return best if simplest in best else [*best[: MOST - 1], simplest]


def simplicity(trial: Trial) -> tuple[int, float, int]:
    """Return a sort key, less for simpler: by rules beside those of a preset, then by the loss."""
    rules = () if trial.recipe is None else trial.recipe.rules
    said = sum(rule.origin is not Origin.PRESET for rule in rules)
    return said, 0.0 if trial.loss is None else trial.loss, trial.index
