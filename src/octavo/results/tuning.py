"""What a search for a recipe tried and found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from octavo.core import versions
from octavo.core.data import Data
from octavo.recipe.recipe import Recipe
from octavo.results.benchmark import SMALLEST
from octavo.results.page import Page, Result
from octavo.results.report import Report
from octavo.results.tuning_page import tuning_page


class Approach(Enum):
    """How activations get their scales: while the model runs, or ahead from calibration data."""

    DYNAMIC = "dynamic"
    STATIC = "static"


class Status(Enum):
    """How a search ended."""

    MET = "met"
    MET_AGREEMENT = "met (agreement only)"
    BEST_EFFORT = "best effort"
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"

    @property
    def met(self) -> bool:
        """Tell whether the search ended by itself with a recipe that meets the criterion."""
        return self in (Status.MET, Status.MET_AGREEMENT)

    @property
    def agreement_only(self) -> bool:
        """Tell whether agreement with the float model stands in for an accuracy."""
        return self is Status.MET_AGREEMENT

    @property
    def timed_out(self) -> bool:
        """Tell whether the time was up."""
        return self is Status.TIMED_OUT

    @property
    def stopped(self) -> bool:
        """Tell whether the search did not end by itself, so that it can be resumed."""
        return self in (Status.TIMED_OUT, Status.INTERRUPTED)


class LeftOut(Enum):
    """Tells why a whole recipe that was timed or weighed was not evaluated."""

    NO_GAIN = "no gain"  # the float model is as good
    NO_NEARER = "no nearer"  # its output is hardly nearer than that of one that missed
    BEHIND = "behind"  # one before it met the criterion


class Stop(Enum):
    """Why a search ended."""

    FIRST_MET = "first met"  # the first recipe that met the criterion ends it, as no time is given
    ENDED = "ended"  # the strategy had nothing left that it would try
    MAX_TRIALS = "max trials"
    TIME = "time"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Trial(Data):
    """One recipe and what it measured.

    `index` counts from 1; the unmodified model is 0, its `recipe` None. `words` say the recipe in
    words, `key` is equal for recipes that give the same model. `loss` is how much worse the
    accuracy is than the float model's (negative: better), in the criterion's unit (a share of the
    float model's accuracy where it is relative). `latency` is seconds a run, `float_latency` the
    float model's when both were timed in turns, and `time_ratio` the median of the one over the
    other, `time_low` and `time_high` its quartiles; where it was timed in turns with other trials
    too, the bounds of its 99% interval (None where that is too wide to tell anything). `score` is
    the objective, the less the better. `error` is a traceback; a trial that has one failed, and has
    no accuracy. `seconds` is what the trial took, `elapsed` when it ended, counted from the start
    of the search (over resumptions). `left_out` is why a whole recipe was not evaluated (None: it
    was, or the search ended before its turn).
    """

    index: int
    recipe: Recipe | None
    words: str
    key: str
    approach: Approach = Approach.DYNAMIC
    layers: int = 0
    quantized: int = 0
    accuracy: float | None = None
    loss: float | None = None
    meets: bool = False
    latency: float | None = None
    time_ratio: float | None = None
    float_latency: float | None = None
    time_low: float | None = None
    time_high: float | None = None
    bytes: int | None = None
    peak_memory: int | None = None
    score: float | None = None
    seconds: float = 0.0
    elapsed: float = 0.0
    error: str = ""
    left_out: LeftOut | None = None

    @property
    def failed(self) -> bool:
        """Tell whether evaluation raised an error."""
        return bool(self.error)

    @property
    def is_static(self) -> bool:
        """Tell whether activations have scales of calibration data."""
        return self.approach is Approach.STATIC

    @property
    def shows_no_difference(self) -> bool:
        """Tell whether the interval of its time shows no difference to the float model's."""
        ratio, low, high = self.time_ratio, self.time_low, self.time_high
        crosses = low is not None and high is not None and low <= 1 <= high
        return ratio is not None and (abs(ratio - 1) < SMALLEST or crosses)


@dataclass(frozen=True)
class TuneResult(Result):
    """The search's outcome.

    `best` is the trial with the best score among those that meet the criterion, else the one whose
    accuracy is nearest to it, else the float model: never None. `criterion` and `objective` are in
    words. `ranking` has each layer's effect on the output when it alone is quantized, the worst
    first, `model_runs` how many runs of the model that took. `report` says what became of each
    layer of the best model. `output` is the file that was written, empty without one. `bound` is
    the largest `Trial.loss` that meets the criterion (None: not known), `relative` whether it is a
    share of the float model's accuracy, `higher_is_better` False for errors. `stop` is why the
    search ended (None: not known), `timeout` how many seconds it had (0: no clock; None: not
    known). `timed` are the whole recipes that were timed, or weighed, before any was evaluated;
    their `index` is 0. `native_ratio` is the best recipe's time in Octavo's own operators over the
    float model's, where no target was chosen and that is a gain. `timed_inputs` are the inputs and
    threads of the runs that were timed, in words.
    """

    status: Status
    best: Trial
    trials: tuple[Trial, ...]
    baseline: Trial
    model: str
    criterion: str
    objective: str
    strategy: str
    seconds: float
    ranking: tuple[tuple[str, float], ...] = ()
    model_runs: int = 0
    report: Report | None = None
    output: str = ""
    notes: tuple[str, ...] = ()
    bound: float | None = None
    relative: bool = False
    higher_is_better: bool = True
    stop: Stop | None = None
    timeout: float | None = None
    timed: tuple[Trial, ...] = ()
    native_ratio: float | None = None
    timed_inputs: str = ""
    version: int = field(default=versions.PAGE)

    @property
    def gains_nothing(self) -> bool:
        """Tell whether the search met the criterion, and no recipe is better by the objective.

        Of accuracy any recipe may lose some: there the float model itself gains nothing.
        """
        best = self.best
        if not self.status.met or best.score is None:
            return False
        if "accuracy" in self.objective:
            return best.index == 0
        timed_alike = best.time_ratio == best.score and best.shows_no_difference
        return best.score >= 1 or timed_alike

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TuneResult:
        """Read what `to_dict` or `to_json` wrote.

        Of numbers that are None in JSON, as they were not finite, only errors in `ranking` come
        back.
        """
        ranking = [(name, math.inf if error is None else error) for name, error in data["ranking"]]
        return super().from_dict({**data, "ranking": ranking})

    def page(self, verbose: bool = False) -> Page:
        """Lay the run out as a page, always all of it, whatever `verbose` says."""
        return tuning_page(self)
