"""The loop around plan, apply and evaluate: it drives strategies, within limits.

No model is evaluated twice, and what the history holds is not measured again: a search that is
resumed runs its strategy from the start, and is answered from the history up to where it stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from octavo.errors import brief
from octavo.recipe import Decision, Recipe
from octavo.results.tuning import LeftOut, Status, Stop, Trial
from octavo.tune.contest import SECONDS, SHARE, Contest
from octavo.tune.goals import or_inf
from octavo.tune.history import digest
from octavo.tune.measurements import Measurements, TimeUpError
from octavo.tune.search import Candidate, Strategy
from octavo.tune.space import Space
from octavo.tune.tasks import Variant


@dataclass(frozen=True)
class Limits:
    """When a search ends.

    After `timeout` seconds (0: no clock, but at the first recipe that meets the criterion) and
    after `max_trials` at the latest.
    """

    timeout: float = 0.0
    max_trials: int = 100

    @property
    def keeps_going(self) -> bool:
        """Tell whether it goes on after a recipe meets the criterion."""
        return self.timeout > 0


class _EnoughError(Exception):
    """The search may stop: a limit is reached, or the criterion met; `args` have the Stop."""


@dataclass
class Loop:
    """One search; also what its strategies are given (`tune.search.SearchContext`).

    `decide` gives a recipe's decisions layer by layer.
    """

    measuring: Measurements
    decide: Callable[[Recipe], Sequence[Decision]]
    limits: Limits
    seed: int = 0
    agreement_only: bool = False
    space: Space = field(init=False)

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self.ranking: tuple[tuple[str, float], ...] = ()
        self.model_runs = 0
        self.stop = Stop.ENDED
        self._by_key: dict[str, Trial] = {}
        self._best: Trial | None = None
        self.starts: Sequence[Space] = ()
        self.max_trials = self.limits.max_trials
        self.timed = self.measuring.timed
        self.needs_accuracy = self.measuring.objective.needs("accuracy")
        self.keeps_going = self.limits.keeps_going
        self.bound = self.measuring.criterion.bound
        self._stop_at_first = not self.keeps_going
        share = SHARE * self.limits.timeout if self.limits.keeps_going else SECONDS
        self._contest_seconds = min(SECONDS, share)
        self._contest = Contest(self.measuring, self._contest_seconds)

    # --- the search ---

    def run(self, searches: Sequence[tuple[Strategy, Sequence[Space]]]) -> Status:
        """Run the searches one after the other; they share what is left of time and trials.

        Raises EvaluationError where the float model itself cannot be evaluated.
        """
        timed_out = interrupted = False
        try:
            self._set_deadline(1.0)
            baseline = self.measuring.measure_baseline()
            self._by_key[baseline.key] = baseline
            self.measuring.view.baseline(baseline)
            for at, (strategy, spaces) in enumerate(searches):
                left = len(searches) - at
                self.starts, self.space = spaces, spaces[0]
                self._set_deadline(1 / left)
                room = self.limits.max_trials - len(self.trials)
                self.max_trials = len(self.trials) + math.ceil(room / left)
                self._stop_at_first = not self.limits.keeps_going and not strategy.converges
                timed_out = self._search(strategy)
            self._settle()
        except TimeUpError:
            timed_out = True
        except KeyboardInterrupt:
            interrupted = True
        return self._status(timed_out=timed_out, interrupted=interrupted)

    def _search(self, strategy: Strategy) -> bool:
        """Run one search; return True if the deadline ended it."""
        steps = strategy.search(self)
        try:
            candidates = next(steps)
            while True:
                candidates = steps.send(self._batch(candidates))
        except StopIteration:
            self.stop = Stop.ENDED
            return False
        except _EnoughError as enough:
            (self.stop,) = enough.args
            return False
        except TimeUpError:
            return True
        finally:
            steps.close()

    def _settle(self) -> None:
        """Chooses the best trial by a comparison of the likeliest, for which time was kept."""
        self.measuring.deadline = self._end(0.0)
        before = self.trials
        self.trials, chosen = self._contest.settle(before)
        again = [t for t, was in zip(self.trials, before, strict=True) if t is not was]
        failed = [trial for trial in again if trial.failed]
        if chosen is not None:
            self._best = chosen
        elif self._best is not None and self._best.key in {trial.key for trial in failed}:
            self._best = None
            for trial in self.trials:
                self._best = trial if self._leads(trial) else self._best
        for trial in failed:
            self.measuring.note(
                f"trial {trial.index} can no longer be made or run, and is left out: "
                f"{brief(Exception(trial.error))}"
            )
        if len(again) > len(failed):
            timed = [trial for trial in again if not trial.failed]
            self.measuring.note(_settled(timed, self.best))

    def _status(self, *, timed_out: bool, interrupted: bool) -> Status:
        if interrupted or timed_out:
            self.stop = Stop.INTERRUPTED if interrupted else Stop.TIME
        if interrupted:
            return Status.INTERRUPTED
        if any(trial.meets for trial in self.trials):
            return Status.MET_AGREEMENT if self.agreement_only else Status.MET
        return Status.TIMED_OUT if timed_out else Status.BEST_EFFORT

    @property
    def best(self) -> Trial:
        """The best trial so far; the float model where there is none that was measured."""
        return self._best or self.baseline

    def _set_deadline(self, share: float) -> None:
        """Set the deadline after this share of the time left, but for the last comparison's."""
        kept = self._contest_seconds if self.measuring.timed else 0.0
        self.measuring.deadline = self._end(kept, share)

    def _end(self, kept: float, share: float = 1.0) -> float | None:
        if self.limits.timeout <= 0:
            return None
        left = self.limits.timeout - kept - self.measuring.elapsed()
        return time.monotonic() + left * share

    # docs/notes/tuning.md: "A trial's number is given when it is proposed"
    def _batch(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Return the candidates' trials; measure those that are new, as far as limits allow."""
        named = [self._named(c) for c in candidates]
        keys = [trial.key for trial in named]
        fresh = {trial.key: trial for trial in named if trial.key not in self._by_key}
        room = self.max_trials - len(self.trials)
        allowed = list(fresh.values())[:room]
        at_once = self.measuring.runner.parallel
        for start in range(0, len(allowed), at_once):
            some = enumerate(allowed[start : start + at_once], len(self.trials) + 1)
            blank = [replace(trial, index=i) for i, trial in some]
            for trial in self._measured(blank):
                self._add(trial)
                if trial.meets and self._stop_at_first:
                    raise _EnoughError(Stop.FIRST_MET)
        if len(allowed) < len(fresh):
            raise _EnoughError(Stop.MAX_TRIALS)
        return [self._by_key[key] for key in keys]

    def _measured(self, blank: Sequence[Trial]) -> list[Trial]:
        """Measure trials; where that is cut off, what is known by then counts all the same."""
        try:
            return self.measuring.measure(blank)
        except (TimeUpError, KeyboardInterrupt):
            for trial in blank:
                known = self.measuring.known(trial)
                if known is not None:
                    self._add(known)
            raise

    def _add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._by_key[trial.key] = trial
        best = self._leads(trial)
        self._best = trial if best else self._best
        self.measuring.view.trial(trial, best=best)

    def _leads(self, trial: Trial) -> bool:
        return not trial.failed and (self._best is None or self.better(trial, self._best))

    def _named(self, candidate: Candidate) -> Trial:
        """Return the candidate as a trial without a number, keyed by the model that it gives."""
        decisions = self.decide(candidate.recipe)
        held = [[d.layer.name, d.scheme.to_dict()] for d in decisions]
        quantized = sum(not d.scheme.is_float for d in decisions)
        return Trial(
            0,
            candidate.recipe,
            candidate.description,
            digest([candidate.approach.value, held]) if quantized else self.baseline.key,
            candidate.approach,
            layers=len(decisions),
            quantized=quantized,
        )

    # --- what a strategy may ask: see SearchContext ---

    @property
    def baseline(self) -> Trial:
        return self.measuring.baseline

    def appraise(self, candidates: Sequence[Candidate]) -> Sequence[Trial]:
        blank = [self._named(candidate) for candidate in candidates]
        if self.timed:
            blank = self._contest.time_many(blank)
        return self.measuring.weighed_before(blank)

    def leave_out(self, candidate: Candidate, why: LeftOut) -> None:
        appraised, key = self.measuring.appraised, self._named(candidate).key
        appraised[key] = replace(appraised[key], left_out=why)

    def beats(self, a: Trial, b: Trial) -> bool:
        return self._contest.beats(a, b)

    def errors(self, recipe: Recipe, sets: Sequence[Collection[str]]) -> Sequence[float]:
        if not sets:
            return []
        values, runs = self.measuring.errors(recipe, sets)
        self.model_runs += runs
        return values

    def rank(self, sensitivities: Mapping[str, float]) -> None:
        self.ranking = tuple(sorted(sensitivities.items(), key=lambda pair: -pair[1]))
        self.measuring.view.ranked(self.ranking, self.model_runs)

    def time_ratios(self, candidates: Sequence[Candidate]) -> Sequence[tuple[float, float]]:
        return self.measuring.time_ratios([Variant(c.recipe, c.approach) for c in candidates])

    def better(self, a: Trial, b: Trial) -> bool:
        if a.meets != b.meets or not a.meets:
            return a.meets or (not b.meets and or_inf(a.loss) < or_inf(b.loss))
        return or_inf(a.score) < or_inf(b.score)


def _settled(again: Sequence[Trial], best: Trial) -> str:
    numbers = ", ".join(str(trial.index) for trial in again)
    return (
        f"trials {numbers} were timed again, in turns: chosen is trial {best.index}, which no "
        "other beats by more than chance; of equally fast ones the smaller file, then the simplest"
    )
