"""What a search for a recipe tried and found, as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from octavo.recipe.report import Report
from octavo.recipe.schema import Recipe

VERSION = 1


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
        """Whether the search ended by itself with a recipe that meets the criterion."""
        return self in (Status.MET, Status.MET_AGREEMENT)


@dataclass(frozen=True)
class Trial:
    """One recipe and what it measured.

    `index` counts from 1; the unmodified model is 0, its `recipe` None. `words` say the recipe in
    words, `key` is equal for recipes that give the same model. `loss` is how much worse the
    accuracy is than the float model's (negative: better), in the criterion's unit (a share of the
    float model's accuracy where it is relative). `latency` is seconds a run, `float_latency` the
    float model's when both were timed in turns, and `time_ratio` the median of the one over the
    other, `time_low` and `time_high` its quartiles. `score` is the objective, the less the better.
    `error` is a traceback; a trial that has one failed, and has no accuracy. `seconds` is what the
    trial took, `elapsed` when it ended, counted from the start of the search (over resumptions).
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

    @property
    def failed(self) -> bool:
        """Whether evaluation raised an error."""
        return bool(self.error)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = asdict(replace(self, recipe=None))  # a recipe's rules are many: not twice
        data["recipe"] = None if self.recipe is None else self.recipe.to_dict()
        data["approach"] = self.approach.value
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        """The inverse of `to_dict`."""
        recipe = None if data["recipe"] is None else Recipe.from_dict(data["recipe"])
        return cls(**{**data, "recipe": recipe, "approach": Approach(data["approach"])})


@dataclass(frozen=True)
class TuneResult:
    """The search's outcome.

    `best` is the trial with the best score among those that meet the criterion, else the one whose
    accuracy is nearest to it, else the float model: never None. `criterion` and `objective` are in
    words. `ranking` has each layer's effect on the output when it alone is quantized, the worst
    first, `model_runs` how many runs of the model that took. `report` says what became of each
    layer of the best model. `output` is the file that was written, empty without one. `bound` is
    the largest `Trial.loss` that meets the criterion (None: not known), `relative` whether it is a
    share of the float model's accuracy, `higher_is_better` False for errors.
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
    version: int = field(default=VERSION)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = {key: getattr(self, key) for key in self.__dataclass_fields__}
        data["status"] = self.status.value
        data["best"], data["baseline"] = self.best.to_dict(), self.baseline.to_dict()
        data["trials"] = [trial.to_dict() for trial in self.trials]
        data["report"] = None if self.report is None else self.report.to_dict()
        return data

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text; numbers that are not finite are written as null."""
        return json.dumps(_finite(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TuneResult:
        """The inverse of `to_dict` and `to_json`; of what is None in JSON, as it was not finite,
        only errors in `ranking` come back."""
        report = data["report"]
        return cls(
            **{
                **data,
                "status": Status(data["status"]),
                "best": Trial.from_dict(data["best"]),
                "baseline": Trial.from_dict(data["baseline"]),
                "trials": tuple(Trial.from_dict(trial) for trial in data["trials"]),
                "ranking": tuple(
                    (name, math.inf if error is None else error) for name, error in data["ranking"]
                ),
                "report": None if report is None else Report.from_dict(report),
                "notes": tuple(data["notes"]),
            }
        )

    def __str__(self) -> str:
        from octavo.report.tuning import tuning_text

        return tuning_text(self)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    if isinstance(data, float) and data - data != 0:
        return None
    return data
