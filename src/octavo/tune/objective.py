"""What is made small among the recipes that keep the accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import OptionError, did_you_mean
from octavo.results.tuning import Trial

OBJECTIVES = ("performance", "accuracy", "modelsize", "footprint")
_WORDS = {
    "performance": "latency",
    "accuracy": "accuracy",
    "modelsize": "size of the model",
    "footprint": "peak memory",
}


@dataclass(frozen=True)
class Objective:
    """One objective or a weighted sum of several; `parts` are (name, weight) pairs.

    `performance` is the time of a run, `modelsize` the bytes of the file, `footprint` the memory of
    a process at its peak, `accuracy` the accuracy itself. Each counts as a share of the float
    model's, so that they can be added; weights are relative.
    """

    parts: tuple[tuple[str, float], ...] = (("performance", 1.0),)

    def __post_init__(self) -> None:
        if not self.parts:
            raise OptionError(f"an objective has at least one part: {', '.join(OBJECTIVES)}")
        for name, weight in self.parts:
            if name not in OBJECTIVES:
                raise OptionError(f"unknown objective {name!r}.{did_you_mean(name, OBJECTIVES)}")
            if isinstance(weight, bool) or not isinstance(weight, (int, float)):
                raise OptionError(f"objective {name!r}: its weight is a number, not {weight!r}")
            if not 0 <= weight < math.inf:
                raise OptionError(
                    f"objective {name!r}: its weight is 0 or more and finite, not {weight}"
                )
        if sum(weight for _, weight in self.parts) == 0:
            raise OptionError("the weights of the objectives are all 0")

    @classmethod
    def of(cls, given: str | Objective | Sequence[tuple[str, float]]) -> Objective:
        """From a name, (name, weight) pairs or itself."""
        if isinstance(given, Objective):
            return given
        if isinstance(given, str):
            return cls(((given, 1.0),))
        return cls(tuple((name, weight) for name, weight in given))

    def needs(self, name: str) -> bool:
        """Whether `name` has a weight."""
        return any(part == name and weight > 0 for part, weight in self.parts)

    def score(self, trial: Trial, baseline: Trial, higher_is_better: bool) -> float | None:
        """The weighted mean of the parts, 1 for the float model, the less the better.

        None where a part was not measured.
        """
        total = weights = 0.0
        for name, weight in self.parts:
            share = _share(name, trial, baseline, higher_is_better)
            if share is None:
                return None
            total, weights = total + weight * share, weights + weight
        return total / weights

    def __str__(self) -> str:
        if len(self.parts) == 1:
            return _WORDS[self.parts[0][0]]
        return ", ".join(f"{_WORDS[name]} (weight {weight:g})" for name, weight in self.parts)


def _share(name: str, trial: Trial, baseline: Trial, higher_is_better: bool) -> float | None:
    if name == "performance":
        return trial.time_ratio
    if name == "accuracy":
        if trial.accuracy is None or baseline.accuracy is None:
            return None
        worse = baseline.accuracy - trial.accuracy
        scale = abs(baseline.accuracy) or 1.0
        return 1.0 + (worse if higher_is_better else -worse) / scale
    mine, theirs = (
        (trial.bytes, baseline.bytes)
        if name == "modelsize"
        else (trial.peak_memory, baseline.peak_memory)
    )
    return None if mine is None or not theirs else mine / theirs
