"""Inputs to measure a model with where the user has given none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from octavo.core.feeds import Shapes, fitting_shapes
from octavo.errors import InputDataError, brief
from octavo.graph.analysis.walk import opset_of
from octavo.onnx.constants import Constants
from octavo.onnx.inputs import Feed, FixedShapes, made_up
from octavo.onnx.read.load import Source

FEEDS = 4
_SECONDS = 30.0
"""In which sizes grow until the model runs."""


def random_feeds(
    source: Source,
    runner: Any,
    shapes: Shapes,
    seed: int,
    give: str = "shapes (--shape name=1x128,..) or data (--data FILE)",
) -> list[Feed]:
    """Up to `FEEDS` inputs of one shape with different random values, which the model has run on.

    `shapes` of inputs that are named; symbolic dimensions that others share with them follow.
    Raises InputDataError where a shape does not fit, or nothing could be made up; it says to `give`
    something.
    """
    found = _Guesses(source, runner, seed)
    first = found.first(shapes)
    if first is not None:
        return found.several(shapes, *first)
    if fits := fitting_shapes(shapes, found.feed) if shapes else "":
        raise InputDataError(
            f"the model does not run on {_words(shapes)}: {fits}. Give --shape such sizes"
        )
    given = f" with the shapes {_words(shapes)}" if shapes else ""
    raise InputDataError(
        f"no inputs{given} could be made up that the float model accepts ({found.reason}); give "
        f"{give}"
    )


class _Guesses:
    """Inputs that are made up for a model, until it runs on some; `reason` is why not on others."""

    def __init__(self, source: Source, runner: Any, seed: int) -> None:
        self._model, self._runner, self._seed = source.model, runner, seed
        self._constants = Constants(opset_of(source.model))
        self._grows = False
        self.reason = "all that came to mind are empty or too large"

    def feed(self, shapes: Shapes) -> Feed | None:
        """Return inputs of these shapes on which the model runs; None where none is found."""
        found = self.first(shapes)
        return None if found is None else found[1]

    def first(self, shapes: Shapes) -> tuple[int, Feed] | None:
        """Return a guess's number and inputs on which the model runs; None where none is found.

        Sizes grow where the model takes none of the likely ones.
        """
        found = self._first(shapes, math.inf)
        if found is None:
            self._grows, reason = True, self.reason
            found = self._first(shapes, perf_counter() + _SECONDS)
            self._grows, self.reason = found is not None, reason
        return found

    def _first(self, shapes: Shapes, end: float) -> tuple[int, Feed] | None:
        tried = []
        for index, feed in enumerate(self._made_up(shapes, 0)):
            if perf_counter() > end:
                return None
            form = {name: np.shape(array) for name, array in feed.items()}
            if form in tried:  # nothing was left to guess
                continue
            tried.append(form)
            problem = _problem(self._runner, feed)
            if problem is None:
                return index, feed
            self.reason = problem
        return None

    def several(self, shapes: Shapes, index: int, feed: Feed) -> list[Feed]:
        """Return `feed`, and others of its shapes with other numbers."""
        more = [next(islice(self._made_up(shapes, i), index, None)) for i in range(1, FEEDS)]
        return _distinct(self._runner, [feed, *more])

    def _made_up(self, shapes: Shapes, number: int) -> Iterator[Feed]:
        fixed = FixedShapes.of(shapes, self._model.graph)
        seed = (self._seed, number)
        return made_up(self._model, self._constants, seed, fixed, grows=self._grows)


def _distinct(runner: Any, feeds: Sequence[Feed]) -> list[Feed]:
    """Return the first, and the others that differ from it and that the model takes too."""
    first, *others = feeds
    return [
        first,
        *(
            feed
            for feed in others
            if any(not np.array_equal(feed[name], first[name]) for name in first)
            and _problem(runner, feed) is None
        ),
    ]


def _problem(runner: Any, feed: Feed) -> str | None:
    try:
        runner.run(None, feed)
    except Exception as error:  # noqa: BLE001 - a wrong guess fails in many ways
        return brief(error)
    return None


def _words(shapes: Shapes) -> str:
    return ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())
