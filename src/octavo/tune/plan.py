"""What a search is about: its arguments, checked and made into objects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import NothingQuantizedError, OptionError, did_you_mean
from octavo.measure.data import Dataset
from octavo.recipe import Granularity, Recipe, Rule, Scheme
from octavo.recipe.target import Feed, Target
from octavo.results.tuning import Approach
from octavo.tune.criterion import Criterion
from octavo.tune.evaluators import Evaluator
from octavo.tune.objective import Objective
from octavo.tune.search import Strategy
from octavo.tune.space import Space
from octavo.tune.strategies import strategy as strategy_of
from octavo.tune.work import Setting

APPROACHES = ("dynamic", "static", "auto")
Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Plan:
    """What is searched for, and how."""

    target: Target
    evaluator: Evaluator
    criterion: Criterion
    objective: Objective
    strategy: str
    recipe: Recipe
    alternatives: tuple[Rule, ...]
    approaches: tuple[Approach, ...]
    seed: int

    def searches(self) -> list[tuple[Strategy, Space]]:
        """One search for each approach. Raises NothingQuantizedError where there is no choice."""
        found = []
        decisions = self.target.decisions(self.recipe)
        for approach in self.approaches:
            raised = self._raised() if approach is Approach.DYNAMIC else ()
            space = Space.of(decisions, self.recipe, self.alternatives, raised, approach)
            if not space.choices:
                reasons = sorted({f"{d.layer.op}: {d.reason}" for d in decisions})
                raise NothingQuantizedError(
                    f"{self.target.label}: no layer would be quantized "
                    f"({'; '.join(reasons[:5]) or 'it has no layer that holds weights'}); there is "
                    "nothing to tune: change the recipe (--recipe, --ops), or give another model"
                )
            found.append((strategy_of(self.strategy), space))
        return found

    def _raised(self) -> tuple[Scheme, ...]:
        """Schemes between the recipe's own and float; the default one where it is coarser."""
        weight = self.recipe.default.weight
        coarse = weight is not None and weight.granularity is Granularity.TENSOR
        return (*((Scheme(),) if coarse else ()), *self.target.raised())

    def subject(self, data: Any, setting: Setting) -> dict[str, Any]:
        """What tells this search from another, in a history."""
        return {
            "model": self.target.fingerprint(),
            "evaluate": self.evaluator.identity(),
            "data": _stamp(data),
            "criterion": vars(self.criterion),
            "objective": self.objective.parts,
            "strategy": self.strategy,
            "recipe": self.recipe.to_dict(),
            "alternatives": [rule.to_dict() for rule in self.alternatives],
            "approach": [approach.value for approach in self.approaches],
            "seed": self.seed,
            "timing": [setting.warmup, setting.rounds],
            "calibration": len(setting.calibration),
            "shapes": [{name: list(shape) for name, shape in s.items()} for s in setting.shapes],
        }


def checked_shapes(given: Shapes | Sequence[Shapes]) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Each mapping of `given` with whole numbers; empty ones left out."""
    each = [given] if isinstance(given, Mapping) else list(given)
    return tuple({n: tuple(int(d) for d in shape) for n, shape in s.items()} for s in each if s)


def checked_criterion(given: Criterion | float, evaluator: Evaluator) -> Criterion:
    """A number is relative; the direction is the metric's where only it knows."""
    if isinstance(given, Criterion):
        return given
    lower = evaluator.higher_is_better is False
    return Criterion(relative=given, higher_is_better=not lower)


def checked_approaches(given: str) -> tuple[Approach, ...]:
    """The approaches that `given` means. Raises OptionError."""
    if given not in APPROACHES:
        raise OptionError(f"approach {given!r}.{did_you_mean(str(given), APPROACHES)}")
    return tuple(Approach) if given == "auto" else (Approach(given),)


def checked_timeout(given: float) -> float:
    """Seconds. Raises OptionError."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < 1e9:
        raise OptionError(f"timeout is in seconds, 0 (no clock) or more, not {given!r}")
    return float(given)


def checked_calibration(plan: Plan, given: Any, samples: int) -> tuple[Feed, ...]:
    """Inputs for static quantization; none where it is not asked for. Raises OptionError."""
    if Approach.STATIC not in plan.approaches:
        return ()
    source = plan.evaluator if given is None else Dataset.of(given)
    feeds = tuple(source.feeds(samples))
    if not feeds:
        raise OptionError(
            "static quantization needs calibration data, and there are none: give data (--data), "
            "or choose approach dynamic (post_training_dynamic_quant), which needs none"
        )
    return feeds


def _stamp(data: Any) -> list[Any] | None:
    """Size and date of a data file: another file is another search."""
    if not isinstance(data, (str, os.PathLike)) or not Path(data).is_file():
        return None
    found = Path(data).stat()
    return [found.st_size, found.st_mtime_ns]
