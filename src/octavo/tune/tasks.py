"""What trials do, as functions of plain data that run in any process.

A `Setting` says what a whole search shares; it travels pickled, once for each task, and a process
unpickles it once. The last model that a process built is kept, so that what is evaluated and then
timed is built once.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from octavo.errors import InputDataError, OctavoError
from octavo.measure.timing import time_ratios
from octavo.recipe import Recipe
from octavo.results.target import Built, Feed, Target
from octavo.results.tuning import Approach
from octavo.results.words import clean, count
from octavo.tune.evaluators import Evaluator
from octavo.tune.turns import Turns


@dataclass(frozen=True)
class Variant:
    """One form of the model: the float one for `recipe` None.

    `native` is for Octavo's own operators, where the target leaves that open (`Target.native`).
    """

    recipe: Recipe | None
    approach: Approach = Approach.DYNAMIC
    native: bool = False


@dataclass(frozen=True)
class Evaluate:
    """Measures accuracy and size of `variant`."""

    variant: Variant


@dataclass(frozen=True)
class Time:
    """Times `variants` in turns, in about `limit` seconds at most, though each runs three times."""

    variants: tuple[Variant, ...]
    limit: float = math.inf


@dataclass(frozen=True)
class Compare:
    """Times `variants` in turns, each opened afresh again and again, for about `seconds`.

    Nothing begins after `limit` seconds: see `Turns`.
    """

    variants: tuple[Variant, ...]
    seconds: float
    limit: float = math.inf


@dataclass(frozen=True)
class Weigh:
    """Measures the size of `variant`."""

    variant: Variant


@dataclass(frozen=True)
class Peak:
    """Measures the memory that `variant` needs."""

    variant: Variant


@dataclass(frozen=True)
class Errors:
    """Measures the output's error with each of `sets` of layers quantized, all others float."""

    recipe: Recipe
    sets: tuple[tuple[str, ...], ...]


Task = Evaluate | Time | Compare | Weigh | Peak | Errors


@dataclass(frozen=True)
class TaskResult:
    """What a task gives: its `value` (plain data), or the traceback of what went wrong.

    Values: Evaluate [accuracy, bytes]; Time a list of [seconds, ratio to the first one, its lower
    and upper quartile] a variant, None for each ratio on a busy machine; Compare, see
    `Turns.compared`; Weigh and Peak bytes; Errors [the numbers, how many inputs each ran on].
    """

    value: Any
    error: str = ""
    seconds: float = 0.0


@dataclass
class Setting:
    """What all tasks of a search share.

    `shapes` are those of the inputs that are timed, one entry for each; without, the evaluator's
    own inputs or made-up ones serve. `path` are folders in which modules are found.
    """

    target: Target
    evaluator: Evaluator
    shapes: tuple[dict[str, tuple[int, ...]], ...] = ()
    calibration: tuple[Feed, ...] = ()
    seed: int = 0
    warmup: int = 2
    rounds: int = 11
    time_budget: float = 10.0
    samples: int = 2
    path: tuple[str, ...] = ()
    _last: tuple[Variant, Built] | None = field(default=None, repr=False)
    _float: Built | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        kept = {k: v for k, v in self.__dict__.items() if k != "timed_feeds"}
        return {**kept, "_last": None, "_float": None}

    def built(self, variant: Variant) -> Built:
        """Return the model in `variant`; the one asked for last, and the float one, are kept."""
        if variant.recipe is None:
            if self._float is None:
                self._float = self.target.float_model()
            return self._float
        last = self._last  # of this thread's own: an executor's threads share the setting
        if last is None or last[0] != variant:
            self._last = last = None  # its memory is free before the next one is made
            self._last = last = (variant, self._build(variant))
        return last[1]

    def _build(self, variant: Variant) -> Built:
        assert variant.recipe is not None
        return self._target_of(variant).build(variant.recipe, self._calibration_of(variant))

    def _target_of(self, variant: Variant) -> Target:
        native = self.target.native() if variant.native else None
        return native or self.target

    def _calibration_of(self, variant: Variant) -> tuple[Feed, ...] | None:
        return self.calibration if variant.approach is Approach.STATIC else None

    @cached_property
    def timed_feeds(self) -> tuple[Feed, ...]:
        """The inputs of the runs that are timed."""
        if self.shapes:
            return tuple(self.target.made_up(shape, self.seed)[0] for shape in self.shapes)
        return tuple(self.feeds()[:1])

    def timed_words(self) -> str:
        """Return `input_ids 32x37, 1 thread`; nothing where no input can be had."""
        try:
            feeds = self.timed_feeds
        except OctavoError:
            return ""
        each = [
            ", ".join(
                f"{clean(name)} {'x'.join(map(str, np.shape(value))) or 'scalar'}"
                for name, value in feed.items()
            )
            for feed in feeds
        ]
        threads = self.target.threads
        return "; ".join(each) + ("" if threads is None else f", {count(threads, 'thread')}")

    def feeds(self) -> tuple[Feed, ...]:
        """Return a few inputs that the model accepts: from the data if there are any."""
        found = self.evaluator.feeds(self.samples)
        if found:
            return tuple(found)
        for shape in self.shapes or ({},):
            return tuple(self.target.made_up(shape, self.seed)[: self.samples])
        raise InputDataError("no inputs")  # pragma: no cover - made_up gives one or raises

    def perform(self, task: Task) -> Any:
        """Perform `task`, and return its value."""
        if isinstance(task, Evaluate):
            built = self.built(task.variant)
            accuracy = self.evaluator.accuracy(built, lambda: self.built(Variant(None)))
            return [accuracy, built.bytes]
        if isinstance(task, Time):
            return self._times(task.variants, task.limit)
        if isinstance(task, Compare):
            return self._compared(task)
        if isinstance(task, Weigh):
            return self.built(task.variant).bytes
        if isinstance(task, Peak):
            calibration = self._calibration_of(task.variant)
            return self.target.peak_memory(task.variant.recipe, self.timed_feeds[0], calibration)
        feeds = self.feeds()
        return [list(self.target.errors(task.recipe, task.sets, feeds)), len(feeds)]

    def _times(self, variants: Sequence[Variant], limit: float) -> list[list[float | None]]:
        """Return each variant's seconds (over all timed inputs), and the ratio to the first one's.

        The machine may be too busy to tell: there is no ratio then.
        """
        few = len(variants) <= 2  # the float model and the one that was evaluated last
        models = [self.built(f) if few or f.recipe is None else self._build(f) for f in variants]
        found = [[0.0, 1.0, 1.0, 1.0] for _ in variants]
        busy = False
        for feed in self.timed_feeds:
            runs = {str(i): _call(model, feed) for i, model in enumerate(models)}
            compared = time_ratios(
                runs,
                warmup=self.warmup,
                rounds=self.rounds,
                budget_seconds=min(self.time_budget, limit) / len(self.timed_feeds),
            )
            busy |= compared.busy
            for i, row in enumerate(found):
                ratio = compared.time(str(i), over="0")
                row[0] += compared[str(i)].median
                for at, value in enumerate((ratio.median, ratio.low, ratio.high), 1):
                    row[at] *= value ** (1 / len(self.timed_feeds))
        return [[row[0], None, None, None] if busy else [*row] for row in found]

    def _compared(self, task: Compare) -> dict[str, Any]:
        """See `Turns.compared`."""
        self._last = None  # its memory is free
        makers = [partial(self._opener, variant) for variant in task.variants]
        return Turns(makers, self.timed_feeds, task.seconds, task.limit, self.seed).compared()

    def _opener(self, variant: Variant) -> AbstractContextManager[Callable[[], Built]]:
        return self._target_of(variant).opener(variant.recipe, self._calibration_of(variant))


def _call(model: Built, feed: Feed) -> Any:
    return lambda: model.run(feed)


@dataclass(frozen=True)
class PackedSetting:
    """A setting, pickled; `token` tells it from others."""

    blob: bytes
    token: str

    @classmethod
    def of(cls, setting: Setting) -> PackedSetting:
        """Pickle `setting`. Raises what pickling raises."""
        blob = pickle.dumps(setting)
        return cls(blob, hashlib.sha256(blob).hexdigest())


_SETTINGS: dict[str, Setting] = {}


def perform_packed(packed: PackedSetting, path: Sequence[str], task: Task) -> TaskResult:
    """Perform `task` in another process, which keeps the setting for the next task.

    `path` are folders in which the modules that the setting names are found.
    """
    for folder in path:
        if folder not in sys.path:
            sys.path.insert(0, folder)
    if packed.token not in _SETTINGS:
        _SETTINGS.clear()
        _SETTINGS[packed.token] = pickle.loads(packed.blob)
    try:
        return perform(_SETTINGS[packed.token], task)
    except KeyboardInterrupt:  # raised by evaluate: Ctrl-C is the parent's
        return TaskResult(None, traceback.format_exc())


def perform(setting: Setting, task: Task) -> TaskResult:
    """Return the task's value, or the traceback of the error that the task stopped with."""
    start = time.monotonic()
    try:
        value, error = setting.perform(task), ""
    except OctavoError as known:
        value, error = None, f"{type(known).__name__}: {known}"
    except (Exception, SystemExit):  # noqa: BLE001 - evaluate may raise anything; the search goes on
        value, error = None, traceback.format_exc()
    return TaskResult(value, error, time.monotonic() - start)
