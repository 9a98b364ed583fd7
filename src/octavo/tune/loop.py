"""The loop around plan, apply and evaluate: it drives a strategy, measures, and keeps the history.

No model is evaluated twice, and what the history holds is not measured again: a search that is
resumed runs its strategy from the start, and is answered from the history up to where it stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from octavo.errors import EvaluationError, brief
from octavo.recipe import Decision, Recipe
from octavo.recipe.tuning import Approach, Status, Trial
from octavo.tune.criterion import Criterion
from octavo.tune.history import History, digest
from octavo.tune.objective import Objective
from octavo.tune.runners import Runner
from octavo.tune.search import Candidate, Strategy
from octavo.tune.space import Space
from octavo.tune.work import Errors, Evaluate, Form, Measured, Peak, Task, Time


class View(Protocol):
    """Who watches."""

    def start(
        self,
        model: str,
        criterion: str,
        objective: str,
        strategy: str,
        layers: int,
        max_trials: int,
        deadline_seconds: float | None,
        *,
        bound: float,
        relative: bool,
    ) -> None:
        """What is searched for, and how long: `deadline_seconds` is None without a clock.

        `bound` is the largest loss that meets the criterion, `relative` says that losses are
        shares.
        """

    def doing(self, text: str) -> None:
        """What is being done now."""

    def baseline(self, trial: Trial) -> None:
        """The float model was measured."""

    def ranked(self, pairs: Sequence[tuple[str, float]], model_runs: int) -> None:
        """Layers by their effect on the output."""

    def trial(self, trial: Trial, best: bool) -> None:
        """A trial was measured; `best` if it is the best so far."""

    def note(self, text: str) -> None:
        """Something to know."""


class Quiet:
    """Nobody watches."""

    def start(
        self,
        model: str,
        criterion: str,
        objective: str,
        strategy: str,
        layers: int,
        max_trials: int,
        deadline_seconds: float | None,
        *,
        bound: float,
        relative: bool,
    ) -> None:
        """See View."""

    def doing(self, text: str) -> None:
        """See View."""

    def baseline(self, trial: Trial) -> None:
        """See View."""

    def ranked(self, pairs: Sequence[tuple[str, float]], model_runs: int) -> None:
        """See View."""

    def trial(self, trial: Trial, best: bool) -> None:
        """See View."""

    def note(self, text: str) -> None:
        """See View."""


@dataclass(frozen=True)
class Limits:
    """When a search ends: after `timeout` seconds (0: at the first recipe that meets the
    criterion) and after `max_trials` at the latest."""

    timeout: float = 0.0
    max_trials: int = 100

    @property
    def keeps_going(self) -> bool:
        """Whether it goes on after a recipe meets the criterion."""
        return self.timeout > 0


class _EnoughError(Exception):
    """The search may stop: a limit is reached, or the criterion met."""


class _TimeUpError(Exception):
    """The deadline has come."""


@dataclass
class Loop:
    """One search; also the ground that its strategy stands on (`tune.search.Ground`).

    `runner` evaluates, `clock` times: one task at a time, on this host. `decide` gives a recipe's
    decisions layer by layer.
    """

    decide: Callable[[Recipe], Sequence[Decision]]
    criterion: Criterion
    objective: Objective
    limits: Limits
    history: History
    runner: Runner
    clock: Runner
    seed: int = 0
    agreement_only: bool = False
    view: View = field(default_factory=Quiet)

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self.ranking: tuple[tuple[str, float], ...] = ()
        self.model_runs = 0
        self.baseline = Trial(0, None, "float model", "")
        self._start = time.monotonic() - self.history.elapsed
        self._by_key: dict[str, Trial] = {}
        self._deadline: float | None = None
        self._approach = Approach.DYNAMIC
        self._trials_allowed = self.limits.max_trials
        self._stop_at_first = not self.limits.keeps_going
        self._space: Space | None = None

    # --- the search ---

    def run(self, searches: Sequence[tuple[Approach, Strategy, Space]]) -> Status:
        """Runs the searches one after the other; they share what is left of time and trials.

        Raises EvaluationError where the float model itself cannot be evaluated.
        """
        timed_out = interrupted = False
        try:
            self._set_deadline(1.0)
            self._measure_baseline()
            for at, (approach, strategy, space) in enumerate(searches):
                left = len(searches) - at
                self._approach, self._space = approach, space
                self._set_deadline(1 / left)
                self._trials_allowed = self.limits.max_trials - len(self.trials)
                self._trials_allowed = len(self.trials) + math.ceil(self._trials_allowed / left)
                self._stop_at_first = not self.limits.keeps_going and not strategy.converges
                timed_out = self._search(strategy)
        except _TimeUpError:
            timed_out = True
        except KeyboardInterrupt:
            interrupted = True
        return self._status(timed_out=timed_out, interrupted=interrupted)

    def _search(self, strategy: Strategy) -> bool:
        """True if the deadline ended it."""
        steps = strategy.search(self)
        try:
            candidates = next(steps)
            while True:
                candidates = steps.send(self._batch(candidates))
        except (StopIteration, _EnoughError):
            return False
        except _TimeUpError:
            return True
        finally:
            steps.close()

    def _status(self, *, timed_out: bool, interrupted: bool) -> Status:
        if interrupted:
            return Status.INTERRUPTED
        if any(trial.meets for trial in self.trials):
            return Status.MET_AGREEMENT if self.agreement_only else Status.MET
        return Status.TIMED_OUT if timed_out else Status.BEST_EFFORT

    @property
    def best(self) -> Trial:
        """The best trial so far; the float model where there is none that was measured."""
        best = self.baseline
        for trial in self.trials:
            if not trial.failed and (best is self.baseline or self.better(trial, best)):
                best = trial
        return best

    def elapsed(self) -> float:
        """Seconds since the search began, those before a resumption included."""
        return time.monotonic() - self._start

    def _set_deadline(self, share: float) -> None:
        if self.limits.timeout > 0:
            left = self._start + self.limits.timeout - time.monotonic()
            self._deadline = time.monotonic() + left * share

    # --- trials ---

    def _batch(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """The candidates' trials; those that are new are measured, as far as limits allow."""
        keys = [self._key(c) for c in candidates]
        fresh = {
            key: candidate
            for key, candidate in zip(keys, candidates, strict=True)
            if key not in self._by_key
        }
        room = self._trials_allowed - len(self.trials)
        allowed = list(fresh.items())[:room]
        at_once = self.runner.parallel
        for start in range(0, len(allowed), at_once):
            for trial in self._measure(allowed[start : start + at_once]):
                self._add(trial)
                if trial.meets and self._stop_at_first:
                    raise _EnoughError
        if len(allowed) < len(fresh):
            raise _EnoughError
        return [self._by_key[key] for key in keys]

    def _add(self, trial: Trial) -> None:
        before = self.best
        self.trials.append(trial)
        self._by_key[trial.key] = trial
        self.view.trial(trial, best=self.best is not before)

    def _key(self, candidate: Candidate) -> str:
        decisions = self.decide(candidate.recipe)
        held = [[d.layer.name, d.scheme.to_dict()] for d in decisions]
        if all(d.scheme.is_float for d in decisions):
            return self.baseline.key
        return digest([self._approach.value, held])

    def _measure(self, items: Sequence[tuple[str, Candidate]]) -> list[Trial]:
        """Measured trials, from the history or now."""
        blank = [self._blank(i, key, c) for i, (key, c) in enumerate(items, len(self.trials) + 1)]
        known = {trial.key: self._recalled(trial) for trial in blank}
        todo = [trial for trial in blank if known[trial.key] is None]
        if todo:
            for trial in self._evaluated(todo):
                known[trial.key] = trial
                if not trial.failed and self._more_to_measure:
                    known[trial.key] = weighed = self._weighed(trial)
                    self._keep("trial", trial.key, weighed.to_dict())
        return [found for trial in blank if (found := known[trial.key]) is not None]

    def _blank(self, index: int, key: str, candidate: Candidate) -> Trial:
        decisions = self.decide(candidate.recipe)
        return Trial(
            index,
            candidate.recipe,
            candidate.words,
            key,
            self._approach,
            layers=len(decisions),
            quantized=sum(not d.scheme.is_float for d in decisions),
        )

    def _recalled(self, blank: Trial) -> Trial | None:
        found = self.history.get("trial", blank.key)
        return None if found is None else Trial.from_dict(found)

    def _evaluated(self, trials: Sequence[Trial]) -> list[Trial]:
        """With accuracy and size. Each is in the history as soon as it is known."""
        numbers = ", ".join(str(trial.index) for trial in trials)
        self.view.doing(f"evaluating trial{'s' if len(trials) > 1 else ''} {numbers}")
        found: dict[int, Trial] = {}
        todo = []
        for i, trial in enumerate(trials):
            known = self.history.get("evaluated", trial.key)
            if known is None:
                todo.append(i)
            else:
                found[i] = Trial.from_dict(known)

        def done(at: int, measured: Measured) -> None:
            trial = self._judged(trials[todo[at]], measured)
            final = trial.failed or not self._more_to_measure
            found[todo[at]] = trial = self._scored(trial) if final else trial
            self._keep("trial" if final else "evaluated", trial.key, trial.to_dict())

        tasks = [Evaluate(Form(trials[i].recipe, self._approach)) for i in todo]
        answers = self.runner.run(tasks, self._deadline, done)
        if None in answers:
            raise _TimeUpError
        return [found[i] for i in range(len(trials))]

    @property
    def _more_to_measure(self) -> bool:
        return self.timed or self.objective.needs("footprint")

    def _judged(self, trial: Trial, measured: Measured) -> Trial:
        trial = replace(trial, seconds=measured.seconds, elapsed=self.elapsed())
        if measured.error:
            return replace(trial, error=measured.error)
        accuracy, size = measured.value
        if math.isnan(accuracy):
            return replace(trial, error="the accuracy is NaN", bytes=size)
        assert self.baseline.accuracy is not None
        return replace(
            trial,
            accuracy=accuracy,
            bytes=size,
            loss=self.criterion.loss(self.baseline.accuracy, accuracy),
            meets=self.criterion.meets(self.baseline.accuracy, accuracy),
        )

    def _weighed(self, trial: Trial) -> Trial:
        """With latency and memory, where the objective asks for them, and the score."""
        form = Form(trial.recipe, trial.approach)
        if self.timed:
            self.view.doing(f"timing trial {trial.index}")
            measured = self._alone(Time((Form(None), form)))
            if measured.error:
                return replace(trial, error=measured.error, meets=False, accuracy=None)
            seconds, ratio, *_ = measured.value[1]
            trial = replace(trial, latency=seconds, time_ratio=ratio)
        if self.objective.needs("footprint"):
            measured = self._alone(Peak(form))
            if measured.error:
                return replace(trial, error=measured.error, meets=False, accuracy=None)
            trial = replace(trial, peak_memory=measured.value)
        return self._scored(replace(trial, elapsed=self.elapsed()))

    def _scored(self, trial: Trial) -> Trial:
        higher = self.criterion.higher_is_better
        return replace(trial, score=self.objective.score(trial, self.baseline, higher))

    def _measure_baseline(self) -> None:
        found = self.history.get("baseline", "")
        if found is not None:
            self.baseline = Trial.from_dict(found)
        else:
            self.baseline = self._measured_baseline()
            self._keep("baseline", "", self.baseline.to_dict())
        self._by_key[self.baseline.key] = self.baseline
        self.view.baseline(self.baseline)

    def _measured_baseline(self) -> Trial:
        self.view.doing("evaluating the float model")
        (measured,) = self.runner.run([Evaluate(Form(None))], self._deadline, _nobody)
        if measured is None:
            raise _TimeUpError
        _refuse_useless(measured)
        accuracy, size = measured.value
        trial = Trial(
            0,
            None,
            "float model",
            "float",
            accuracy=accuracy,
            loss=0.0,
            meets=True,
            bytes=size,
            seconds=measured.seconds,
        )
        if self.timed:
            times = self._alone(Time((Form(None),)))
            _refuse_useless(times)
            trial = replace(trial, latency=times.value[0][0], time_ratio=1.0)
        if self.objective.needs("footprint"):
            peak = self._alone(Peak(Form(None)))
            _refuse_useless(peak)
            trial = replace(trial, peak_memory=peak.value)
        return replace(trial, score=1.0, elapsed=self.elapsed())

    def _alone(self, task: Task) -> Measured:
        """One task on the host whose clock counts, with nothing beside it."""
        (measured,) = self.clock.run([task], self._deadline, _nobody)
        if measured is None:
            raise _TimeUpError
        return measured

    def _keep(self, kind: str, key: str, value: Any) -> None:
        self.history.put(kind, key, value, self.elapsed())

    # --- what a strategy may ask ---

    @property
    def space(self) -> Space:
        """See Ground."""
        assert self._space is not None
        return self._space

    @property
    def max_trials(self) -> int:
        """See Ground."""
        return self._trials_allowed

    @property
    def timed(self) -> bool:
        """See Ground."""
        return self.objective.needs("performance")

    @property
    def keeps_going(self) -> bool:
        """See Ground."""
        return self.limits.keeps_going

    @property
    def bound(self) -> float:
        """See Ground."""
        return self.criterion.bound

    def errors(self, recipe: Recipe, sets: Sequence[Collection[str]]) -> Sequence[float]:
        """See Ground. Where they cannot be measured, all are 0, and a note says why."""
        ordered = tuple(tuple(sorted(names)) for names in sets)
        if not ordered:
            return []
        key = digest([recipe.to_dict(), ordered])
        found = self.history.get("errors", key)
        if found is None:
            self.view.doing(f"running the model with {len(ordered)} sets of layers quantized")
            measured = self._alone(Errors(recipe, ordered))
            found = measured.value
            if measured.error:
                self._note(f"layers are not ranked by their effect: {brief(_last(measured))}")
                found = [[0.0] * len(ordered), 0]
            self._keep("errors", key, found)
        values, feeds = found
        self.model_runs += len(ordered) * feeds
        return list(values)

    def rank(self, sensitivities: Mapping[str, float]) -> None:
        """See Ground."""
        self.ranking = tuple(sorted(sensitivities.items(), key=lambda pair: -pair[1]))
        self.view.ranked(self.ranking, self.model_runs)

    def time_ratios(self, candidates: Sequence[Candidate]) -> Sequence[tuple[float, float]]:
        """See Ground. Where they cannot be measured, all are 1, and a note says why."""
        forms = tuple(Form(c.recipe, self._approach) for c in candidates)
        key = digest([[self._approach.value, c.recipe.to_dict()] for c in candidates])
        found = self.history.get("times", key)
        if found is None:
            self.view.doing("timing which kinds of layers are worth quantizing")
            measured = self._alone(Time(forms))
            found = measured.value
            if measured.error:
                self._note(f"kinds of layers are not timed: {brief(_last(measured))}")
                found = [[0.0, 1.0, 1.0, 1.0] for _ in forms]
            self._keep("times", key, found)
        return [(low, high) for _, _, low, high in found]

    def better(self, a: Trial, b: Trial) -> bool:
        """See Ground."""
        if a.meets != b.meets or not a.meets:
            return a.meets or (not b.meets and _or_inf(a.loss) < _or_inf(b.loss))
        return _or_inf(a.score) < _or_inf(b.score)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.view.note(text)


def _nobody(place: int, measured: Measured) -> None:
    """Nobody waits for a single task."""


def _or_inf(value: float | None) -> float:
    return math.inf if value is None or math.isnan(value) else value


def _last(measured: Measured) -> Exception:
    """The last line of a traceback, as what it reports."""
    return Exception(measured.error.strip().splitlines()[-1])


def _refuse_useless(measured: Measured) -> None:
    """Raises EvaluationError unless the float model has an accuracy."""
    if measured.error:
        raise EvaluationError(
            f"the float model cannot be evaluated, so that there is nothing to keep:\n"
            f"{measured.error.rstrip()}"
        )
    value = measured.value[0] if isinstance(measured.value, list) else measured.value
    if isinstance(value, float) and not math.isfinite(value):
        raise EvaluationError(
            f"the float model's accuracy is {value}: no loss can be told from it. Mend evaluate, "
            "or the data"
        )
