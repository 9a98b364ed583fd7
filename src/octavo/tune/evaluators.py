"""How the accuracy of a built model is found: a callable, a metric on data, or agreement."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.errors import InputDataError, OptionError, listed
from octavo.files.lookup import load_object
from octavo.measure.accuracy import CLOSENESS, Metric, accuracy, outputs
from octavo.measure.data import Dataset
from octavo.results.target import Built, Feed, Target
from octavo.tune.goals import Criterion

FloatModel = Callable[[], Built]


class Evaluator(ABC):
    """Measures accuracy, as `description` says."""

    description = ""
    agreement_only = False
    """Whether it says only how near the outputs are to the float model's."""
    higher_is_better: bool | None = None
    """What the metric itself says; None where only the user knows."""

    def identity(self) -> Any:
        """Return plain data that tells it from another, in a history."""
        return [self.description]

    @abstractmethod
    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """Return the accuracy of `built`."""

    def feeds(self, count: int) -> Sequence[Feed]:
        """Return up to `count` inputs from the data; none where there are none."""
        return ()


@dataclass
class CallableEvaluator(Evaluator):
    """A callable that is given the model, or its name as `module:function`.

    `data`, where there are any, are for calibration and timing: the callable has its own.
    """

    evaluate: Callable[[Any], Any] | str
    data: Dataset | None = None

    def __post_init__(self) -> None:
        if isinstance(self.evaluate, str):
            self.description = self.evaluate
        else:
            name = getattr(self.evaluate, "__qualname__", type(self.evaluate).__qualname__)
            module = getattr(self.evaluate, "__module__", "")
            self.description = f"{module}.{name}".removeprefix(".")

    def identity(self) -> Any:
        """Return its name, and its source where there is one: another may measure otherwise."""
        return [self.description, source_digest(self.evaluate)]

    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """Return what the callable gives: a number, or a dict's number named `accuracy`."""
        return as_number(self.callable()(built.model), self.description)

    def callable(self) -> Callable[[Any], Any]:
        """Return the callable itself. Raises OptionError where the name leads to none."""
        if not isinstance(self.evaluate, str):
            return self.evaluate
        found = load_object(self.evaluate, OptionError)
        if not callable(found):
            raise OptionError(
                f"{self.evaluate} is a {type(found).__name__}; needs a callable that takes the "
                "model and returns its accuracy"
            )
        return found  # type: ignore[no-any-return]

    def feeds(self, count: int) -> Sequence[Feed]:
        return () if self.data is None else self.data.feeds(count)


def source_digest(evaluate: Any) -> str:
    """Return a digest of the source of a callable or object, or of the module of a named one."""
    try:
        if isinstance(evaluate, str):
            spec = importlib.util.find_spec(evaluate.partition(":")[0])
            origin = None if spec is None else spec.origin
            text = b"" if origin is None else Path(origin).read_bytes()
        else:
            kind = evaluate if inspect.isroutine(evaluate) else type(evaluate)
            text = inspect.getsource(kind).encode()
    except (OSError, TypeError, ValueError, ImportError):
        return ""
    return hashlib.sha256(text).hexdigest()[:24]


def as_number(given: Any, name: str) -> float:
    """Return the accuracy that `evaluate` returned. Raises InputDataError where there is none."""
    if isinstance(given, Mapping):
        if "accuracy" not in given:
            raise InputDataError(
                f"{name} returned a dict with {listed(map(repr, given)) or 'nothing'}; the "
                "number to keep is to be called 'accuracy'"
            )
        given = given["accuracy"]
    try:
        if isinstance(given, (str, bytes)):
            raise TypeError
        return float(given)
    except (TypeError, ValueError):
        kind = type(given).__name__
        said = f"{given!r} ({kind})" if isinstance(given, (str, bytes, type(None))) else f"a {kind}"
        raise InputDataError(
            f"{name} returned {said:.80}; needs a number, or a dict with one named 'accuracy'"
        ) from None


@dataclass(frozen=True)
class WeightedMetric:
    """One metric of several. Without a `weight` each of them has to meet the criterion."""

    metric: Metric
    weight: float | None = None
    higher_is_better: bool | None = None

    @property
    def upwards(self) -> bool:
        """Tell whether more is better: as the user says, else as the metric does."""
        said = self.higher_is_better
        return self.metric.higher_is_better if said is None else said


@dataclass
class MetricEvaluator(Evaluator):
    """Metrics by name on data.

    Of several with weights, the accuracy is their weighted mean; without weights it is 1 less the
    largest loss among them, so that it meets the criterion if each of them does (`relative` says
    how those losses count). `limit` is the number of batches that are used, -1 all.
    """

    metrics: tuple[WeightedMetric, ...]
    data: Dataset
    limit: int = -1
    relative: bool = True
    _references: Any = field(default=None, repr=False)
    _float_values: list[float] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        names = (
            each.metric.name + ("" if each.weight is None else f" (weight {each.weight:g})")
            for each in self.metrics
        )
        self.description = f"{', '.join(names)} on {self.data.name}"
        self.agreement_only = all(each.metric.needs_references for each in self.metrics)
        self._worst_counts = len(self.metrics) > 1 and self.metrics[0].weight is None
        self.higher_is_better = self._worst_counts or self.metrics[0].upwards

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_references": None, "_float_values": None}

    def identity(self) -> Any:
        """Return all that the number depends on but the data's content."""
        each = [[m.metric.name, m.metric.options, m.weight, m.upwards] for m in self.metrics]
        return [self.description, each, self.limit, self.relative]

    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """Run the data through the model once, and score what the model returns."""
        if len(self.metrics) == 1:
            return self._values(built, float_model)[0]
        if self._worst_counts:
            if self._float_values is None:
                found = self._values(float_model(), float_model)
                for each, base in zip(self.metrics, found, strict=True):
                    self._criterion(each).refuse(base, each.metric.name)
                self._float_values = found
            return 1.0 - max(
                self._criterion(each).loss(base, value)
                for each, base, value in zip(
                    self.metrics, self._float_values, self._values(built, float_model), strict=True
                )
            )
        values = self._values(built, float_model)
        weights = [each.weight or 0.0 for each in self.metrics]
        return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)

    def _criterion(self, each: WeightedMetric) -> Criterion:
        bound = {"relative": 0.0} if self.relative else {"absolute": 0.0}
        return Criterion(**bound, higher_is_better=each.upwards)

    def _values(self, built: Built, float_model: FloatModel) -> list[float]:
        if self._references is None and any(e.metric.needs_references for e in self.metrics):
            self._references = outputs(float_model().run, self.data, self.limit)
        run = built.run if len(self.metrics) == 1 else _remembered(built, self.data, self.limit)
        return [
            accuracy(run, self.data, each.metric, self.limit, self._references)
            for each in self.metrics
        ]

    def feeds(self, count: int) -> Sequence[Feed]:
        return self.data.feeds(count)


def _remembered(built: Built, data: Dataset, limit: int) -> Callable[[Feed], Sequence[Any]]:
    """Return a function that gives the outputs for the batches of `data` in order, repeatedly."""
    found = outputs(built.run, data, limit)
    order = itertools.cycle(found)
    return lambda feed: next(order)


@dataclass
class ClosenessEvaluator(Evaluator):
    """Closeness to the float model on made-up inputs: 1 less the worst output's relative error.

    That is all that can be said without labels; the status says `met (agreement only)`. It has no
    inputs of its own to give: the search makes some up. Seed and shapes are in the history anyway.
    """

    target: Target
    shapes: tuple[dict[str, tuple[int, ...]], ...] = ()
    seed: int = 0
    _expected: list[list[Any]] | None = field(default=None, repr=False)
    _inputs: tuple[Feed, ...] = field(default=(), repr=False)

    description = "agreement with the float model on made-up inputs"
    agreement_only = True
    higher_is_better = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_expected": None, "_inputs": ()}

    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """Return closeness, at most 1; -inf where the model gives numbers that are not finite."""
        if not self._inputs:
            shapes = self.shapes or ({},)
            self._inputs = tuple(f for s in shapes for f in self.target.made_up(s, self.seed))
        if self._expected is None:
            self._expected = [list(float_model().run(feed)) for feed in self._inputs]
        got = [list(built.run(feed)) for feed in self._inputs]
        return CLOSENESS.score(got, self._expected)
