"""Runs two models on inputs that were given, or made up within a budget of memory and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from octavo.core.masked_rows import Padding, of_tokens
from octavo.errors import InputDataError, VerificationError, brief
from octavo.graph.analysis.walk import opset_of
from octavo.onnx.check.distance import Run
from octavo.onnx.check.memory import Memory
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import open_session
from octavo.onnx.inputs import Feed, made_up
from octavo.onnx.read.load import Source, load
from octavo.onnx.read.normalize import load_normalized

MOST_RUN_BYTES = 10**9
"""Above the two models."""
CHECK_SECONDS = 10.0
FLOAT_RUNS = 20
"""A check takes `CHECK_SECONDS`, or as long as this many runs of the float model."""
LONGEST_RUN = 60.0
"""Seconds after which a run on inputs that were made up is ended."""
NOTHING_ELSE = "all that came to mind are empty or too large"
NOT_MADE_UP = "no inputs could be made up that the float model accepts"


class Clock:
    """How much time is left. The time of a float run, once it is known, may lengthen it."""

    def __init__(self) -> None:
        self._started, self._seconds = perf_counter(), CHECK_SECONDS

    def ran(self, seconds: float) -> None:
        """Record that a run of the float model took `seconds`."""
        self._seconds = max(self._seconds, FLOAT_RUNS * seconds)

    @property
    def left(self) -> float:
        """Seconds; below 0 when it is over."""
        return self._seconds - (perf_counter() - self._started)


def run_within(model: Any, names: list[str] | None, feed: Feed, seconds: float) -> Any:
    """Return the outputs of a session's run.

    Raises TimeoutError where the run is not done in `seconds`, and whatever ONNX Runtime raises.
    """
    options = ort.RunOptions()
    options.log_severity_level = 4

    def end() -> None:
        options.terminate = True

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        return model.run(names, dict(feed), options)
    except Exception as error:
        if options.terminate:
            raise TimeoutError(f"it was not done in {seconds:.0f} s") from error
        raise
    finally:
        timer.cancel()


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

    @cached_property
    def model(self) -> ir.Model:
        """The float model, to read of; that of the source is another by now: it was converted."""
        return load(self._source.origin).model

    @cached_property
    def _memory(self) -> Memory:
        """Return the memory of the model with its local functions written out.

        Sizes inside the functions count too.
        """
        model = load_normalized(self._source.origin) if self.model.functions else self.model
        return Memory(model)

    def given(self, feeds: Sequence[Feed]) -> list[Run]:
        """Run both models on `feeds`. Raises InputDataError where the float model rejects one."""
        done = []
        for feed in feeds:
            try:
                expected = self.theirs.run(self.names, feed)
            except Exception as error:
                raise InputDataError(
                    f"the float model rejects the inputs that were given: {brief(error)}; give "
                    "inputs (check_inputs, --inputs) on which it runs"
                ) from error
            done.append(self._run(feed, expected, None))
        return done

    def accepted(self, branch: int = 0) -> Iterator[Accepted]:
        """Yield made-up inputs that fit into the budget and that the float model takes.

        Their sizes grow, in a time of their own, where the model takes none of the likely ones.
        """
        taken = None
        for taken in self._accepted(branch, grows=False):
            yield taken
        if taken is None and branch == 0:
            self.clock = Clock()
            yield from self._accepted(branch, grows=True)

    def _accepted(self, branch: int, grows: bool) -> Iterator[Accepted]:
        tried, large = list[Feed](), grows and bool(self.refused)  # the likely ones say why
        constants = Constants(opset_of(self.model))
        for feed in made_up(self.model, constants, branch=branch, grows=grows):
            if self.clock.left <= 0:
                self.refused = self.refused or "the time for it was over"
                return
            if any(all(np.array_equal(feed[n], other[n]) for n in feed) for other in tried):
                continue  # nothing was left to guess
            tried.append(feed)
            needed = self._memory.most(feed)
            if needed > MOST_RUN_BYTES and grows:
                continue
            if needed > MOST_RUN_BYTES:
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
        """Run the other model on inputs that the float one took. Raises TimeoutError."""
        return self._run(taken.feed, taken.expected, max(self.clock.left, 1.0))

    def again(self, feed: Feed) -> Sequence[Any]:
        """Return the float model's outputs on a feed that it has taken before."""
        return list(self.theirs.run(self.names, feed))

    def _run(self, feed: Feed, expected: Sequence[Any], seconds: float | None) -> Run:
        known = of_tokens(self.theirs.get_inputs(), self.theirs.get_outputs())
        padding = Padding.of(feed, known)
        return Run(feed, expected, self._got(feed, seconds), padding)

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


def open_float(source: Source) -> Any:
    """Open a session on the float model, or return why there is none."""
    try:
        origin = source.origin
        return open_session(origin if isinstance(origin, Path) else origin.SerializeToString())
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
        return brief(error)
