"""Inputs to measure a model with where the user has given none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from octavo.errors import InputDataError, brief
from octavo.graph.analysis.walk import opset_of
from octavo.onnx.constants import Constants
from octavo.onnx.inputs import Feed, FixedShapes, made_up
from octavo.onnx.read.load import Source

FEEDS = 4


def random_feeds(
    source: Source,
    runner: Any,
    shapes: Mapping[str, Sequence[int]],
    seed: int,
    give: str = "shapes (--shape name=1x128,..) or data (--data FILE)",
) -> list[Feed]:
    """Up to `FEEDS` inputs of one shape with different random values, which the model has run on.

    `shapes` of inputs that are named; symbolic dimensions that others share with them follow.
    Raises InputDataError where a shape does not fit, or nothing could be made up; it says to `give`
    something.
    """
    model = source.model
    constants = Constants(opset_of(model))
    fixed = FixedShapes.of(shapes, model.graph)
    reason, tried = "all that came to mind are empty or too large", []
    for index, feed in enumerate(made_up(model, constants, (seed, 0), fixed)):
        form = {name: np.shape(array) for name, array in feed.items()}
        if form in tried:  # nothing was left to guess
            continue
        tried.append(form)
        problem = _problem(runner, feed)
        if problem is None:
            more = [_nth(model, constants, fixed, (seed, i), index) for i in range(1, FEEDS)]
            return _distinct(runner, [feed, *more])
        reason = problem
    given = f" with the shapes {_words(shapes)}" if shapes else ""
    raise InputDataError(
        f"no inputs{given} could be made up that the float model accepts ({reason}); give {give}"
    )


def _nth(
    model: Any, constants: Constants, fixed: FixedShapes, seed: Sequence[int], index: int
) -> Feed:
    return next(islice(made_up(model, constants, seed, fixed), index, None))


def _distinct(runner: Any, feeds: Sequence[Feed]) -> list[Feed]:
    """The first, and those of the others that differ from it and that the model takes too."""
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


def _words(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())
