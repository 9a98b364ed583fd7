"""How the accuracy of a built model is found: a callable, a metric on data, or agreement."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from octavo.core.metrics import relative_error
from octavo.errors import InputDataError, OptionError
from octavo.files.named import named
from octavo.measure.accuracy import accuracy
from octavo.measure.data import Dataset
from octavo.measure.metrics import Metric
from octavo.recipe.target import Built, Feed, Target

FloatModel = Callable[[], Built]


class Evaluator(Protocol):
    """Measures accuracy. `words` say how, and tell one evaluator from another in a history."""

    @property
    def words(self) -> str:
        """How accuracy is measured."""

    @property
    def agreement_only(self) -> bool:
        """Whether it says only how near the outputs are to the float model's."""

    @property
    def higher_is_better(self) -> bool | None:
        """What the metric itself says; None where only the user knows."""

    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """The accuracy of `built`."""

    def feeds(self, count: int) -> Sequence[Feed]:
        """Up to `count` inputs from the data; none where there are none."""


@dataclass
class Called:
    """A callable that is given the model, or its name as `module:function`."""

    evaluate: Callable[[Any], Any] | str
    higher_is_better: bool | None = None
    agreement_only: bool = False

    @property
    def words(self) -> str:
        """The callable's name."""
        if isinstance(self.evaluate, str):
            return self.evaluate
        name = getattr(self.evaluate, "__qualname__", type(self.evaluate).__qualname__)
        return f"{getattr(self.evaluate, '__module__', '')}.{name}".removeprefix(".")

    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """What the callable returns: a number, or a dict with one named `accuracy`."""
        return as_number(self.callable()(built.model), self.words)

    def callable(self) -> Callable[[Any], Any]:
        """The callable itself. Raises OptionError where the name leads to none."""
        if not isinstance(self.evaluate, str):
            return self.evaluate
        found = named(self.evaluate, OptionError)
        if not callable(found):
            raise OptionError(
                f"{self.evaluate} is a {type(found).__name__}; needs a callable that takes the "
                "model and returns its accuracy"
            )
        return found  # type: ignore[no-any-return]

    def feeds(self, count: int) -> Sequence[Feed]:
        """None: only the callable knows its data."""
        return ()


def as_number(given: Any, words: str) -> float:
    """The accuracy in what `evaluate` returned. Raises InputDataError where there is none."""
    if isinstance(given, Mapping):
        if "accuracy" not in given:
            raise InputDataError(
                f"{words} returned a dict with {', '.join(map(repr, given)) or 'nothing'}; the "
                "number to keep is to be called 'accuracy'"
            )
        given = given["accuracy"]
    try:
        if isinstance(given, (str, bytes)):
            raise TypeError
        return float(given)
    except (TypeError, ValueError):
        raise InputDataError(
            f"{words} returned {given!r:.80} ({type(given).__name__}); needs a number, or a dict "
            "with one named 'accuracy'"
        ) from None


@dataclass
class OnData:
    """Metrics by name on a data file; of several, the weighted mean.

    `limit` is the number of batches that are used, -1 all.
    """

    metrics: tuple[tuple[Metric, float], ...]
    data: Dataset
    limit: int = -1
    agreement_only: bool = False
    _references: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_references": None}

    @property
    def words(self) -> str:
        """The metrics' names and the data's."""
        several = len(self.metrics) > 1
        names = [f"{m.name}{f' (weight {w:g})' if several else ''}" for m, w in self.metrics]
        return f"{', '.join(names)} on {self.data.label}"

    @property
    def higher_is_better(self) -> bool | None:
        """What the first metric says."""
        return self.metrics[0][0].higher_is_better

    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """Runs the data through the model, once for each metric."""
        total = sum(weight for _, weight in self.metrics)
        found = 0.0
        for metric, weight in self.metrics:
            reference = None if metric.needs_labels else float_model().run
            value = accuracy(built.run, self.data, metric, limit=self.limit, reference=reference)
            found += value * (weight / total)
        return found

    def feeds(self, count: int) -> Sequence[Feed]:
        """The first inputs of the data."""
        return self.data.feeds(count)


@dataclass
class MadeUp:
    """Closeness to the float model on made-up inputs: 1 less the worst output's relative error.

    That is all that can be said without labels; the status says `met (agreement only)`.
    """

    target: Target
    shapes: tuple[dict[str, tuple[int, ...]], ...] = ()
    seed: int = 0
    higher_is_better: bool | None = True
    agreement_only: bool = True
    _expected: list[list[Any]] | None = field(default=None, repr=False)
    _inputs: tuple[Feed, ...] = field(default=(), repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_expected": None, "_inputs": ()}

    @property
    def words(self) -> str:
        """What it is."""
        return "agreement with the float model on made-up inputs"

    def accuracy(self, built: Built, float_model: FloatModel) -> float:
        """At most 1; -inf where the model gives numbers that are not finite."""
        if not self._inputs:
            shapes = self.shapes or ({},)
            self._inputs = tuple(f for s in shapes for f in self.target.made_up(s, self.seed))
        if self._expected is None:
            self._expected = [list(float_model().run(feed)) for feed in self._inputs]
        worst = 0.0
        got = [list(built.run(feed)) for feed in self._inputs]
        for at in range(len(self._expected[0])):
            pairs = [(a[at], b[at]) for a, b in zip(self._expected, got, strict=True)]
            pairs = [(a, b) for a, b in pairs if np.asarray(a).dtype.kind == "f"]
            if not pairs:
                continue
            if any(a.shape != b.shape for a, b in pairs):
                return -math.inf
            a = np.concatenate([a.ravel() for a, _ in pairs])
            b = np.concatenate([b.ravel() for _, b in pairs])
            finite = np.isfinite(a)
            if not np.isfinite(b[finite]).all():
                return -math.inf
            worst = max(worst, relative_error(a[finite], b[finite]))
        return 1.0 - worst

    def feeds(self, count: int) -> Sequence[Feed]:
        """None of its own: the search makes some up."""
        return ()
