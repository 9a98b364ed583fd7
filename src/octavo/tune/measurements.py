"""Measures what a search asks for: from the history where it is there, else by running tasks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo.errors import EvaluationError, HistoryError, brief, typed
from octavo.recipe import Recipe
from octavo.results.benchmark import BUSY
from octavo.results.tuning import Trial
from octavo.tune.goals import Criterion, Objective
from octavo.tune.history import History, digest
from octavo.tune.runners import Runner, is_lost
from octavo.tune.search import View
from octavo.tune.tasks import (
    Compare,
    Errors,
    Evaluate,
    Peak,
    Task,
    TaskResult,
    Time,
    Variant,
    Weigh,
)
from octavo.tune.turns import fewest_seconds

EVALUATIONS = 2
"""Time for so many is left by comparisons that come before the first."""

BASELINE = 0.2
"""Of the time, what timing the float model alone may take."""


class TimeUpError(Exception):
    """The deadline has come."""


@dataclass
class Measurements:
    """What is measured by `runner`: evaluations several at once, all else one task at a time.

    Every measurement is in the history before it is used. Methods raise TimeUpError at `deadline`
    (of time.monotonic; None for no clock).
    """

    criterion: Criterion
    objective: Objective
    history: History
    runner: Runner
    view: View
    deadline: float | None = None

    def __post_init__(self) -> None:
        self.start = time.monotonic() - self.history.elapsed
        self.notes: list[str] = []
        self.baseline = Trial(0, None, "float model", "float")
        self.timed_already: dict[str, Trial] = {}
        """Trials by their keys that have a time, from a comparison before they were evaluated."""
        self.appraised: dict[str, Trial] = {}
        """Whole recipes by their keys, as they were timed or weighed before any was evaluated."""

    def elapsed(self) -> float:
        """Seconds since the search began, those before a resumption included."""
        return time.monotonic() - self.start

    @property
    def timed(self) -> bool:
        """Tell whether latency is measured."""
        return self.objective.needs("performance")

    @property
    def weighed(self) -> bool:
        """Tell whether memory is measured."""
        return self.objective.needs("footprint")

    # --- the float model ---

    def measure_baseline(self) -> Trial:
        """Return the float model's trial, measured or from the history.

        Raises EvaluationError where the float model has no accuracy, and OptionError where the
        criterion is a share of an accuracy of 0.
        """
        found = self._stored("baseline", "")
        if found is not None:
            self.baseline = found
            self._refuse_zero(self.baseline)
        else:
            self.view.doing("evaluating the float model")
            self.baseline = self._measured_baseline()
            self._keep("baseline", "", self.baseline.to_dict())
        return self.baseline

    def _measured_baseline(self) -> Trial:
        trial = self._stored("evaluated", self.baseline.key) or self._evaluated_baseline()
        self._refuse_zero(trial)
        if self.timed:
            times = _useful(self._alone(Time((Variant(None),), self._limit(BASELINE))))
            trial = replace(trial, latency=times[0][0], time_ratio=1.0)
        if self.weighed:
            trial = replace(trial, peak_memory=_useful(self._alone(Peak(Variant(None)))))
        return replace(trial, score=1.0, elapsed=self.elapsed())

    def _refuse_zero(self, baseline: Trial) -> None:
        if baseline.accuracy is not None:
            self.criterion.refuse(baseline.accuracy)

    def _evaluated_baseline(self) -> Trial:
        (measured,) = self.runner.run([Evaluate(Variant(None))], self.deadline, _nobody)
        if measured is None:
            raise TimeUpError
        accuracy, size = _useful(measured)
        trial = replace(
            self.baseline,
            accuracy=accuracy,
            loss=0.0,
            meets=True,
            bytes=size,
            seconds=measured.seconds,
        )
        if self.timed or self.weighed:
            self._keep("evaluated", trial.key, trial.to_dict())
        return trial

    # --- trials ---

    def measure(self, blank: Sequence[Trial]) -> list[Trial]:
        """Return the trials with what they measured; each is kept as soon as it is known."""
        known = {trial.key: self._recalled("trial", trial) for trial in blank}
        todo = [trial for trial in blank if known[trial.key] is None]
        if todo:
            for trial in self._evaluated(todo):
                known[trial.key] = trial
                if not trial.failed and (self.timed or self.weighed):
                    known[trial.key] = done = self._weighed(trial)
                    self._keep("trial", trial.key, done.to_dict())
        return [found for trial in blank if (found := known[trial.key]) is not None]

    # docs/notes/tuning.md: "A model is known by its decisions"
    def known(self, blank: Trial) -> Trial | None:
        """Return what is known of a trial whose measurement was cut off; None for nothing."""
        return self._recalled("trial", blank) or self._recalled("evaluated", blank)

    def _recalled(self, kind: str, blank: Trial) -> Trial | None:
        """Recall a trial from the history.

        What failed for a lost worker or a full disk is not recalled, but tried again.
        """
        found = self._stored(kind, blank.key)
        trial = None if found is None else replace(found, index=blank.index)
        return None if trial is None or is_lost(trial.error) else trial

    def _stored(self, kind: str, key: str) -> Trial | None:
        found = self.history.get(kind, key)
        try:
            return None if found is None else Trial.from_dict(found)
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryError(
                f"the history that is resumed is damaged: its {kind} {key!r} is no trial "
                f"({typed(error)}); leave resuming out to start anew"
            ) from error

    def _evaluated(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials with accuracy and size."""
        numbers = ", ".join(str(trial.index) for trial in trials)
        self.view.doing(f"evaluating trial{'s' if len(trials) > 1 else ''} {numbers}")
        found = {i: self._recalled("evaluated", trial) for i, trial in enumerate(trials)}
        todo = [i for i, trial in found.items() if trial is None]

        def done(at: int, measured: TaskResult) -> None:
            trial = self._judged(trials[todo[at]], measured)
            final = trial.failed or not (self.timed or self.weighed)
            found[todo[at]] = trial = self._scored(trial) if final else trial
            self._keep("trial" if final else "evaluated", trial.key, trial.to_dict())

        tasks = [Evaluate(Variant(trials[i].recipe, trials[i].approach)) for i in todo]
        if None in self.runner.run(tasks, self.deadline, done):
            raise TimeUpError
        return [trial for trial in found.values() if trial is not None]

    def _judged(self, trial: Trial, measured: TaskResult) -> Trial:
        trial = replace(trial, seconds=measured.seconds, elapsed=self.elapsed())
        if measured.error:
            return replace(trial, error=measured.error)
        accuracy, size = measured.value
        if not math.isfinite(accuracy):
            return replace(trial, error=f"the accuracy is {accuracy}", bytes=size)
        assert self.baseline.accuracy is not None
        return replace(
            trial,
            accuracy=accuracy,
            bytes=size,
            loss=self.criterion.loss(self.baseline.accuracy, accuracy),
            meets=self.criterion.meets(self.baseline.accuracy, accuracy),
        )

    def _weighed(self, trial: Trial) -> Trial:
        """Return `trial` with its score, and latency and memory if the objective asks for them."""
        variant = Variant(trial.recipe, trial.approach)
        if self.timed and trial.key in self.timed_already:
            trial = with_times_of(self.timed_already[trial.key], trial)
        elif self.timed:
            self.view.doing(f"timing trial {trial.index}")
            measured = self._alone(Time((Variant(None), variant), self._limit()))
            if measured.error:
                return replace(trial, error=measured.error, meets=False, accuracy=None)
            seconds, ratio, low, high = measured.value[1]
            if ratio is None:
                self.note_once(BUSY)
            else:
                trial = replace(
                    trial,
                    latency=seconds,
                    time_ratio=ratio,
                    float_latency=measured.value[0][0],
                    time_low=low,
                    time_high=high,
                )
        if self.weighed:
            self.view.doing(f"measuring the memory of trial {trial.index}")
            measured = self._alone(Peak(variant))
            if measured.error:
                return replace(trial, error=measured.error, meets=False, accuracy=None)
            trial = replace(trial, peak_memory=measured.value)
        return self._scored(replace(trial, elapsed=self.elapsed()))

    def _scored(self, trial: Trial) -> Trial:
        return replace(trial, score=self.score(trial))

    def score(self, trial: Trial) -> float | None:
        """Return the trial's objective, the less the better; None where a part was not measured."""
        return self.objective.score(trial, self.baseline, self.criterion.higher_is_better)

    # --- beside trials ---

    def errors(
        self, recipe: Recipe, sets: Sequence[Collection[str]]
    ) -> tuple[Sequence[float], int]:
        """Errors of the output (see SearchContext), and the runs of the model that they took.

        Where they cannot be measured, all are 0, and a note says why.
        """
        ordered = tuple(tuple(sorted(names)) for names in sets)
        some = f"{len(ordered)} sets of layers" if len(ordered) > 1 else "some layers"
        values, feeds = self._once(
            "errors",
            digest([recipe.to_dict(), ordered]),
            Errors(recipe, ordered),
            f"running the model with {some} quantized",
            "layers are not ranked by their effect",
            [[0.0] * len(ordered), 0],
        )
        return values, len(ordered) * feeds

    # docs/notes/tuning.md: "Latency is a ratio"
    def time_ratios(self, variants: Sequence[Variant]) -> list[tuple[float, float]]:
        """Quartiles of each variant's time over the first one's.

        Where they cannot be measured, all are 1, and a note says why.
        """
        said = [[v.approach.value, v.recipe and v.recipe.to_dict()] for v in variants]
        found = self._once(
            "times",
            digest(said),
            Time(tuple(variants), self._limit()),
            "timing which kinds of layers are worth quantizing",
            "kinds of layers are not timed",
            [[0.0, 1.0, 1.0, 1.0] for _ in variants],
        )
        if any(low is None for _, _, low, _ in found):
            self.note_once(BUSY)
            return [(1.0, 1.0) for _ in found]
        return [(low, high) for _, _, low, high in found]

    # docs/notes/tuning.md: "The best of many is the luckiest"
    def compared(
        self, trials: Sequence[Trial], seconds: float, doing: str, share: float = 1.0
    ) -> dict[str, Any]:
        """Time the float model and `trials` in turns: see `Turns.compared`.

        The timing ends within this `share` of the time that is left; less than all of that leaves
        time for evaluations, too. Where the time is too short, or timing fails, there are no pairs.
        """
        variants = (Variant(None), *(Variant(t.recipe, t.approach) for t in trials))
        key = digest([seconds, *(trial.key for trial in trials)])
        blank = [None] * len(variants)
        nothing = {"seconds": blank, "bytes": blank, "errors": [""] * len(blank), "pairs": []}
        limit = self._limit(share)
        fewest = fewest_seconds(min(3, len(variants)), self.baseline.latency or 0.0)
        if fewest > limit and self.history.get("compared", key) is None:
            if share < 1:  # a search that is resumed takes the same way
                self._keep("compared", key, nothing)
            return nothing
        task = Compare(variants, seconds, limit)
        failure = "models are not timed in turns"

        def keeps(found: Any) -> bool:
            return share < 1 or bool(found["pairs"])  # else there may be time after a resumption

        return dict(self._once("compared", key, task, doing, failure, nothing, keeps))

    def _limit(self, share: float = 1.0) -> float:
        """Seconds that timing may take."""
        if self.deadline is None:
            return math.inf
        left = self.deadline - time.monotonic()
        kept = 0.0 if share == 1 else EVALUATIONS * self.baseline.seconds
        return max(0.0, min(share * left, left - kept))

    def native_ratio(self, trial: Trial) -> float | None:
        """Return the time of `trial`'s recipe in Octavo's own operators over the float model's.

        None where that cannot be measured.
        """
        variants = (Variant(None), Variant(trial.recipe, native=True))
        doing = "timing the recipe in Octavo's own operators"
        key = digest(["native", trial.key])
        found = self._once(
            "native", key, Time(variants, self._limit()), doing, "target native", None
        )
        return None if found is None or found[1][1] is None else float(found[1][1])

    def weighed_before(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials with the sizes and the peak memory that the objective asks for.

        A trial whose model cannot be made has the error.
        """
        found = [self._scored(self._weighed_before(trial)) for trial in trials]
        self.appraised.update((trial.key, trial) for trial in found)
        return found

    def _weighed_before(self, trial: Trial) -> Trial:
        variant = Variant(trial.recipe, trial.approach)
        if self.objective.needs("modelsize") and trial.bytes is None and not trial.failed:
            measured = self._recorded("size", trial.key, Weigh(variant))
            trial = replace(trial, bytes=measured.value, error=measured.error)
        if self.weighed and not trial.failed:
            measured = self._recorded("peak", trial.key, Peak(variant))
            trial = replace(trial, peak_memory=measured.value, error=measured.error)
        return trial

    def _recorded(self, kind: str, key: str, task: Task) -> TaskResult:
        """Return what the task gives, from the history where that has it."""
        found = self.history.get(kind, key)
        if found is None:
            self.view.doing("weighing whole recipes")
            measured = self._alone(task)
            found = [measured.value, measured.error]
            self._keep(kind, key, found)
        return TaskResult(*found)

    def _once(
        self,
        kind: str,
        key: str,
        task: Task,
        doing: str,
        failure: str,
        otherwise: Any,
        keeps: Callable[[Any], bool] = lambda found: True,
    ) -> Any:
        """Return what the task gives, from the history where that has it.

        Returns `otherwise` where the task fails, with a note. The value is kept in the
        history if `keeps` says so.
        """
        found = self.history.get(kind, key)
        if found is None:
            self.view.doing(doing)
            measured = self._alone(task)
            found = measured.value
            if measured.error:
                self.note(f"{failure}: {_last_line(measured)}")
                found = otherwise
            if keeps(found):
                self._keep(kind, key, found)
        return found

    def _alone(self, task: Task) -> TaskResult:
        """Run one task with nothing beside it."""
        (measured,) = self.runner.run([task], self.deadline, _nobody)
        if measured is None:
            raise TimeUpError
        return measured

    def _keep(self, kind: str, key: str, value: Any) -> None:
        self.history.put(kind, key, value, self.elapsed())

    def note_once(self, text: str) -> None:
        """Note `text` once, however often there is a reason for it."""
        if text not in self.notes:
            self.note(text)

    def note(self, text: str) -> None:
        """Something to know, for the result and whoever watches."""
        self.notes.append(text)
        self.view.note(text)


def with_times_of(timed: Trial, trial: Trial) -> Trial:
    """Return `trial` with what `timed` measured of time."""
    names = ("latency", "time_ratio", "float_latency", "time_low", "time_high")
    return replace(trial, **{name: getattr(timed, name) for name in names})


def _nobody(place: int, measured: TaskResult) -> None:
    """Nobody waits for a single task."""


def _last_line(measured: TaskResult) -> str:
    return brief(Exception(measured.error.strip().splitlines()[-1]))


def _useful(measured: TaskResult) -> Any:
    """Return what the float model measured; EvaluationError where that is an error or no number."""
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
    return measured.value
