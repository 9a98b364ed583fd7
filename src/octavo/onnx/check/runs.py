"""Runs two models on inputs that were given, or made up within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.errors import InputDataError, VerificationError, brief
from octavo.graph.walk import opset_of
from octavo.onnx import normalize
from octavo.onnx.check.budget import LONGEST_RUN, MOST_BYTES, Clock, Memory, run_within
from octavo.onnx.check.measuring import Run
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import open_session
from octavo.onnx.inputs import Feed, made_up
from octavo.onnx.load import Source, load

NOTHING_ELSE = "all that came to mind are empty or too large"
NOT_MADE_UP = "no inputs could be made up that the float model accepts"


@dataclass(frozen=True)
class Accepted:
    """A feed that was made up, and the float model's outputs on it."""

    feed: Feed
    expected: Sequence[Any]


class Runs:
    """Both models, opened. `theirs` is a session on the float model, `ours` on the other."""

    def __init__(self, theirs: Any, ours: Any, source: Source) -> None:
        self.theirs, self.ours = theirs, ours
        self.names = [o.name for o in theirs.get_outputs()]
        self.clock = Clock()
        self.refused = ""
        """Why inputs that were made up were not taken: their memory, or what the last one met."""
        self._source = source
        self._memory: Memory | None = None

    @cached_property
    def model(self) -> ir.Model:
        """The float model, to read of; that of the source is another by now: it was converted."""
        return load(self._source.origin).model

    def given(self, feeds: Sequence[Feed]) -> list[Run]:
        """Runs on all of `feeds`. Raises InputDataError where the float model rejects one."""
        done = []
        for feed in feeds:
            try:
                expected = self.theirs.run(self.names, feed)
            except Exception as error:
                raise InputDataError(
                    f"the float model rejects the inputs that were given: {brief(error)}; give "
                    "inputs (check_inputs, --inputs) on which it runs"
                ) from error
            done.append(Run(feed, expected, self._got(feed, None)))
        return done

    def accepted(self, branch: int = 0) -> Iterator[Accepted]:
        """Inputs that are made up, fit into the budget, and that the float model takes."""
        tried, large = list[Feed](), False
        for feed in made_up(self.model, Constants(opset_of(self.model)), branch=branch):
            if self.clock.left <= 0:
                self.refused = self.refused or "the time for it was over"
                return
            if any(_same(feed, other) for other in tried):
                continue  # nothing was left to guess
            tried.append(feed)
            needed = self._needed(feed)
            if needed > MOST_BYTES:
                self.refused = f"a run needs about {needed / 1e9:.1f} GB"
                large = True
                continue
            started = perf_counter()
            try:
                expected = run_within(self.theirs, self.names, feed, LONGEST_RUN)
            except Exception as error:  # noqa: BLE001 - a wrong guess fails in many ways
                self.refused = self.refused if large else brief(error)
                continue
            self.clock.ran(perf_counter() - started)
            yield Accepted(feed, expected)

    def both(self, taken: Accepted) -> Run:
        """Runs the other model on inputs that the float one took. Raises TimeoutError."""
        return Run(taken.feed, taken.expected, self._got(taken.feed, max(self.clock.left, 1.0)))

    def again(self, feed: Feed) -> Sequence[Any]:
        """The float model's outputs on a feed that it has taken before."""
        return list(self.theirs.run(self.names, feed))

    def _needed(self, feed: Feed) -> float:
        if self._memory is None:
            self._memory = Memory(_inlined(self.model, self._source))
        return self._memory.most(feed)

    def _got(self, feed: Feed, seconds: float | None) -> Sequence[Any]:
        try:
            if seconds is None:
                return list(self.ours.run(self.names, feed))
            return list(run_within(self.ours, self.names, feed, seconds))
        except TimeoutError:
            raise
        except Exception as error:
            raise VerificationError(
                f"the quantized model fails on inputs that the float model accepts: "
                f"{brief(error)}. Exclude layers until it runs, and please report it"
            ) from error


def _same(feed: Feed, other: Feed) -> bool:
    return all(np.array_equal(feed[name], other[name]) for name in feed)


def _inlined(model: ir.Model, source: Source) -> ir.Model:
    """The model, or one whose local functions are written out: sizes inside them count too."""
    if not model.functions:
        return model
    other = load(source.origin).model
    normalize.normalize(other, source.label, normalize.OLDEST)
    return other


def open_float(source: Source) -> Any:
    """A session on the float model, or why there is none."""
    try:
        origin = source.origin
        return open_session(origin if isinstance(origin, Path) else origin.SerializeToString())
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
        return brief(error)
