"""What a search is about: its arguments, checked and made into objects."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.core.qparams import QType
from octavo.errors import NothingQuantizedError, OctavoError, OptionError, did_you_mean
from octavo.files.lookup import defined_names, suggest_module
from octavo.measure.accuracy import CLOSENESS, Metric
from octavo.measure.data import Dataset
from octavo.measure.readers import BATCH_SIZE, read_data
from octavo.recipe import PRESETS, Decision, Granularity, Recipe, Rule, Scheme
from octavo.recipe.yaml_files import recipe_of
from octavo.results.target import Feed, Target
from octavo.results.tuning import Approach
from octavo.tune.auto import Auto
from octavo.tune.evaluators import (
    CallableEvaluator,
    ClosenessEvaluator,
    Evaluator,
    MetricEvaluator,
    WeightedMetric,
)
from octavo.tune.goals import Criterion, Objective
from octavo.tune.history import digest
from octavo.tune.search import Strategy
from octavo.tune.space import Space
from octavo.tune.starts import WHOLE
from octavo.tune.tasks import Setting

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
    recipes: tuple[Recipe, ...]
    alternatives: tuple[Rule, ...]
    approaches: tuple[Approach, ...]
    seed: int

    def searches(self) -> list[tuple[Strategy, Sequence[Space]]]:
        """Return one search for each approach, with the recipes that it may start from.

        There is one such recipe, but for `auto` with dynamic quantization. Raises
        NothingQuantizedError where there is no choice.
        """
        found: list[tuple[Strategy, Sequence[Space]]] = []
        first = self.recipes[0]
        decisions = self.target.decisions(first)
        for approach in self.approaches:
            space = self._space(decisions, first, approach)
            if not space.choices:
                reasons = sorted({f"{d.layer.op}: {d.reason}" for d in decisions})
                raise NothingQuantizedError(
                    f"{self.target.label}: no layer would be quantized "
                    f"({'; '.join(reasons[:5]) or 'it has no layer that holds weights'}); there is "
                    "nothing to tune: change the recipe (--recipe, --ops), or give another model"
                )
            several = self.strategy == Auto.name and approach is Approach.DYNAMIC
            others = self._others(decisions) if several else []
            found.append((strategy_named(self.strategy), [space, *others]))
        return found

    def _others(self, decisions: Sequence[Decision]) -> list[Space]:
        """Around the recipes behind the first, as far as the target can hold them, and each of
        them quantizes other layers or in another way."""
        known, found = [_held(decisions)], []
        for recipe in self.recipes[1:]:
            try:
                others = self.target.decisions(recipe)
            except OctavoError:  # it has nothing to say to this model, or this target
                continue
            space = self._space(others, recipe, Approach.DYNAMIC)
            if space.quantized and _held(others) not in known:
                known.append(_held(others))
                found.append(space)
        return found

    def _space(self, decisions: Sequence[Decision], recipe: Recipe, approach: Approach) -> Space:
        raised = self._raised(recipe) if approach is Approach.DYNAMIC else ()
        return Space.of(decisions, recipe, self.alternatives, raised, approach)

    def _raised(self, recipe: Recipe) -> tuple[Scheme, ...]:
        """Schemes between the recipe's own and float; the default one where it is coarser."""
        weight = recipe.default.weight
        coarse = weight is not None and (
            weight.granularity is Granularity.TENSOR or weight.qtype is QType.INT4
        )
        return (*((Scheme(),) if coarse else ()), *self.target.raised())

    def subject(self, data: Any, setting: Setting) -> dict[str, Any]:
        """Return what tells this search from another, in a history."""
        return {
            "model": self.target.fingerprint(),
            "evaluate": self.evaluator.identity(),
            "data": _stamp(data),
            "criterion": vars(self.criterion),
            "objective": self.objective.parts,
            "strategy": self.strategy,
            "recipe": self.recipes[0].to_dict(),
            "other_recipes": [_identity(recipe) for recipe in self.recipes[1:]],
            "alternatives": [rule.to_dict() for rule in self.alternatives],
            "approach": [approach.value for approach in self.approaches],
            "seed": self.seed,
            "timing": [setting.warmup, setting.rounds],
            "calibration": len(setting.calibration),
            "shapes": [{name: list(shape) for name, shape in s.items()} for s in setting.shapes],
        }


def _held(decisions: Sequence[Decision]) -> list[tuple[str, Scheme]]:
    return [(decision.layer.name, decision.scheme) for decision in decisions]


def _identity(recipe: Recipe) -> Any:
    """Return a preset's name, or what tells another recipe from all others."""
    known = PRESETS.get(recipe.name) == recipe
    return recipe.name if known else [recipe.name, digest(recipe.to_dict())]


def checked_recipes(given: Any) -> tuple[Recipe, ...]:
    """Return the recipes to start from: presets for None, else those given. Raises OptionError."""
    if given is None:
        return tuple(PRESETS[name] for name in WHOLE)
    several = given if isinstance(given, (list, tuple)) else [given]
    if not several:
        raise OptionError(
            "recipe is empty: give a preset's name, a file, a Recipe, or several; leave it out for "
            "the presets"
        )
    return tuple(recipe_of(each) for each in several)


def strategy_named(name: str) -> Strategy:
    """Return the strategy called `name`: `auto`, or one of Neural Compressor's.

    Raises OptionError for an unknown one, for one that is refused, and where a library that it
    needs is not installed.
    """
    if name == Auto.name:
        return Auto()
    from octavo.tune.inc.schema import REFUSED_STRATEGIES
    from octavo.tune.inc.strategies import STRATEGIES

    if name in REFUSED_STRATEGIES:
        raise OptionError(f"strategy {name!r} is refused: {REFUSED_STRATEGIES[name]}")
    if name not in STRATEGIES:
        raise OptionError(
            f"unknown strategy {name!r}.{did_you_mean(name, [Auto.name, *STRATEGIES])}"
        )
    return STRATEGIES[name]()


def checked_shapes(given: Shapes | Sequence[Shapes]) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Return each mapping of `given` with whole numbers; empty ones are left out."""
    each = [given] if isinstance(given, Mapping) else list(given)
    return tuple({n: tuple(int(d) for d in shape) for n, shape in s.items()} for s in each if s)


def checked_criterion(given: Criterion | float, evaluator: Evaluator) -> Criterion:
    """Return `given` as a Criterion: a number is a relative loss, in the metric's direction."""
    if isinstance(given, Criterion):
        return given
    lower = evaluator.higher_is_better is False
    return Criterion(relative=given, higher_is_better=not lower)


def checked_evaluator(
    evaluate: Any,
    metric: Any,
    data: Any,
    target: Target,
    *,
    shapes: tuple[dict[str, tuple[int, ...]], ...],
    seed: int,
    limit: int,
    relative: bool,
    batch_size: int = BATCH_SIZE,
    label: str | None = None,
) -> Evaluator:
    """Build what measures accuracy, from the arguments of `tune`. Raises OptionError."""
    if isinstance(data, (str, os.PathLike)):
        data = read_data(os.fspath(data), label=label, batch_size=batch_size)
    elif data is not None:
        data = Dataset.of(data, label=label)
    if evaluate is not None:
        if metric is not None:
            raise OptionError("evaluate and metric: give one of them; both measure the accuracy")
        if not callable(evaluate) and not isinstance(evaluate, str):
            raise OptionError(
                f"evaluate is a {type(evaluate).__name__}; needs a callable that takes the model "
                "and returns its accuracy, or its name as module:function"
            )
        return CallableEvaluator(
            checked_name(evaluate) if isinstance(evaluate, str) else evaluate, data
        )
    if data is None:
        if metric is not None:
            raise OptionError(
                "a metric needs data: give data (--data, a .npz, .jsonl, .csv or .parquet file), "
                "or evaluate (--evaluate module:function) in its place"
            )
        return ClosenessEvaluator(target, shapes, seed)
    metrics = weighted_metrics(CLOSENESS if metric is None else metric, tensors=is_torch(target))
    return MetricEvaluator(metrics, data, limit, relative)


def is_torch(target: Target) -> bool:
    """Tell whether it is a PyTorch model."""
    return target.output_suffix == ".safetensors"


def weighted_metrics(given: Any, *, tensors: bool = False) -> tuple[WeightedMetric, ...]:
    """Metrics from a name, (name, options), an object, or a list of (one of these, weight).

    Objects have reset, update and result; `tensors` says what they get (`metric_of_object`).
    """
    if isinstance(given, WeightedMetric):
        return (given,)
    named = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    if named or not isinstance(given, (list, tuple)):
        return (WeightedMetric(_metric(given, tensors)),)
    found = tuple(
        each
        if isinstance(each, WeightedMetric)
        else WeightedMetric(_metric(each[0], tensors), each[1])
        for each in given
    )
    if not found or len({each.weight is None for each in found}) > 1:
        raise OptionError("metrics: give at least one, and a weight for all of them or for none")
    if found[0].weight is not None and len({each.upwards for each in found}) > 1:
        said = ", ".join(f"{m.metric.name} {'higher' if m.upwards else 'lower'}" for m in found)
        raise OptionError(
            f"metrics: a weighted mean needs one direction, and which is better differs ({said}); "
            "leave the weights out, and each has to meet the criterion"
        )
    return found


def _metric(given: Any, tensors: bool) -> Metric:
    if isinstance(given, Metric):
        return given
    from octavo.tune.inc.metrics import metric, metric_of_object

    if isinstance(given, (str, tuple)):
        return metric(*((given,) if isinstance(given, str) else given))
    return metric_of_object(given, tensors=tensors)


def checked_name(text: str) -> str:
    """Return `module:function` as it is, where both can be found.

    The module is read, not imported. Raises OptionError.
    """
    module, colon, function = text.partition(":")
    form = all(part.isidentifier() for name in (module, function) for part in name.split("."))
    if not (colon and form):
        raise OptionError(f"evaluate {text!r} is not module:function, such as mymodule:evaluate")
    here = os.getcwd()  # noqa: PTH109 - as sys.path has it
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise OptionError(
            f"evaluate {text}: there is no module {module!r}, neither in the current folder {here} "
            f"nor installed.{suggest_module(module)}"
        )
    known = defined_names(found.origin)
    if known is not None and "." not in function and function not in known:
        raise OptionError(
            f"evaluate {text}: {module} has no {function!r}.{did_you_mean(function, known)}"
        )
    return text


def checked_approaches(given: str) -> tuple[Approach, ...]:
    """Return the approaches that `given` means. Raises OptionError."""
    if given not in APPROACHES:
        raise OptionError(f"approach {given!r}.{did_you_mean(str(given), APPROACHES)}")
    return tuple(Approach) if given == "auto" else (Approach(given),)


def checked_timeout(given: float) -> float:
    """Seconds. Raises OptionError."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < 1e9:
        raise OptionError(f"timeout is in seconds, 0 (no clock) or more, not {given!r}")
    return float(given)


def checked_calibration(plan: Plan, given: Any, samples: int) -> tuple[Feed, ...]:
    """Return inputs for static quantization; none where nobody asks for it. Raises OptionError."""
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
