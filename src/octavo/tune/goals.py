"""The accuracy that a quantized model must keep, and what is made small among those that do."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import OptionError, did_you_mean
from octavo.results.tuning import Trial

_ULPS = 4 * sys.float_info.epsilon  # what rounding may add to a difference, as a share

OBJECTIVES = ("performance", "accuracy", "modelsize", "footprint")
_WORDS = {
    "performance": "latency",
    "accuracy": "accuracy",
    "modelsize": "size of the model",
    "footprint": "peak memory",
}


def or_inf(value: float | None) -> float:
    """Return `value`; infinity where it is not known."""
    return math.inf if value is None or math.isnan(value) else value


@dataclass(frozen=True)
class Criterion:
    """How much accuracy may be lost against the float model.

    `relative` is a share of the float model's accuracy (0.01: one hundredth of it), `absolute` is
    in the accuracy's own unit; one of the two is given. `higher_is_better` is False for errors and
    losses. The float model itself always meets it, whatever the sign of its accuracy; unless the
    bound is negative, which asks for a gain.
    """

    relative: float | None = None
    absolute: float | None = None
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        given = [b for b in (self.relative, self.absolute) if b is not None]
        if len(given) != 1:
            raise OptionError(
                "a criterion has one bound, relative or absolute; got "
                + ("both" if given else "neither")
            )
        (bound,) = given
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            raise OptionError(f"a criterion's bound is a number, not {bound!r}")
        if not math.isfinite(bound):
            raise OptionError(f"a criterion's bound is a finite number, not {bound}")

    def loss(self, baseline: float, accuracy: float) -> float:
        """Return how much worse `accuracy` is than `baseline`; negative where it is better.

        Relative losses are shares of |baseline|; of a baseline of 0, infinite unless equal.
        """
        worse = baseline - accuracy if self.higher_is_better else accuracy - baseline
        if self.relative is None:
            return worse
        if baseline == 0:
            return 0.0 if worse == 0 else math.copysign(math.inf, worse)
        return worse / abs(baseline)

    def refuse(self, baseline: float, measure: str = "accuracy") -> None:
        """Raise OptionError where no share can be taken of the float model's `measure`."""
        if self.relative is not None and baseline == 0:
            raise OptionError(
                f"the float model's {measure} is exactly 0, and the criterion is relative: every "
                "share of 0 is 0. Give an absolute one (accuracy_criterion: {absolute: 0.01}; "
                "Criterion(absolute=0.01) in Python), or see whether metric and labels are right"
            )

    def meets(self, baseline: float, accuracy: float) -> bool:
        """Tell whether no more than the bound is lost; never for NaN."""
        if math.isnan(accuracy) or math.isnan(baseline):
            return False
        if accuracy == baseline:
            return self.bound >= 0
        # 1.0 to 0.99 is a hundredth, though the doubles nearest to them are a little more apart.
        slack = _ULPS * max(abs(baseline), abs(accuracy))
        if self.relative is not None:
            slack /= abs(baseline) or 1.0
        return self.loss(baseline, accuracy) <= self.bound + slack

    @property
    def bound(self) -> float:
        """The bound, in the unit of `loss`."""
        found = self.absolute if self.relative is None else self.relative
        assert found is not None
        return found

    def __str__(self) -> str:
        direction = "" if self.higher_is_better else ", lower is better"
        words = ("at most", "lost") if self.bound >= 0 else ("at least", "gained")
        amount = f"{abs(self.bound):g}"
        if self.relative is not None:
            amount = f"{abs(self.relative) * 100:g}% of the float model's accuracy"
        return f"{words[0]} {amount} {words[1]}{direction}"


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
        """Build an objective from a name, (name, weight) pairs or an objective itself."""
        if isinstance(given, Objective):
            return given
        if isinstance(given, str):
            return cls(((given, 1.0),))
        return cls(tuple((name, weight) for name, weight in given))

    def needs(self, name: str) -> bool:
        """Tell whether `name` has a weight."""
        return any(part == name and weight > 0 for part, weight in self.parts)

    def score(self, trial: Trial, baseline: Trial, higher_is_better: bool) -> float | None:
        """Return the weighted mean of the parts, 1 for the float model, the less the better.

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
