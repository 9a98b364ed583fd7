"""What quantizing some layers alone does to a model's outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from octavo.core.metrics import relative_error
from octavo.errors import InputDataError, RecipeError, brief, did_you_mean
from octavo.recipe import FLOAT, Recipe, Rule
from octavo.recipe.target import Built, Feed
from octavo.torch.plan import Planner
from octavo.torch.tuning.calls import Caller
from octavo.torch.tuning.variants import Variants

Outputs = Sequence[npt.NDArray[Any]]


def output_errors(
    floating: Built,
    layers: Planner,
    recipe: Recipe,
    sets: Sequence[Collection[str]],
    feeds: Sequence[Feed],
    caller: Caller,
    build: Callable[[Recipe], Built],
) -> list[float]:
    """For each set of layers the error of the worst floating-point output, over all feeds.

    `build` makes the models that `Variants` cannot. Raises RecipeError for an unknown layer,
    InputDataError where there are no feeds or the float model fails on one.
    """
    known = [part.layer.name for part in layers.parts]
    for name in {name for some in sets for name in some}.difference(known):
        raise RecipeError(f"there is no layer {name!r}.{did_you_mean(name, known)}")
    expected = _expected(floating, feeds)
    variants = Variants(floating.model, layers, recipe)

    def measured(some: frozenset[str]) -> float:
        try:
            if variants.by_hooks(some):
                model = build(only(recipe, known, some)).model
                return _worst(caller, model, feeds, expected)
            with variants.having(some) as model:
                return _worst(caller, model, feeds, expected)
        except Exception:  # noqa: BLE001 - a model that fails is as wrong as can be
            return math.inf

    return [measured(frozenset(some)) for some in sets]


def only(recipe: Recipe, known: Sequence[str], some: Collection[str]) -> Recipe:
    """`recipe`, under which all of the `known` layers but `some` stay float."""
    floats = (Rule(FLOAT, name=name, reason="not asked for") for name in known if name not in some)
    return recipe.with_rules_first(*floats)


def _expected(floating: Built, feeds: Sequence[Feed]) -> list[Outputs]:
    if not feeds:
        raise InputDataError("there are no inputs to compare outputs on; give at least one")
    try:
        return [floating.run(feed) for feed in feeds]
    except InputDataError:
        raise
    except Exception as error:
        raise InputDataError(f"the float model fails on an input: {brief(error)}") from error


def _worst(
    caller: Caller, model: nn.Module, feeds: Sequence[Feed], expected: Sequence[Outputs]
) -> float:
    worst = 0.0
    for feed, theirs in zip(feeds, expected, strict=True):
        ours = caller.run(model, feed)
        if len(ours) != len(theirs):
            return math.inf
        worst = max(worst, *(_distance(a, b) for a, b in zip(theirs, ours, strict=True)))
    return worst


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Where `a` is finite, as outputs may be masked with infinity; 0 for what is not floating."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    if a.dtype.kind == "c":
        a, b = (np.stack([x.real, x.imag]) for x in (a, b))
    if a.dtype.kind != "f":
        return 0.0
    finite = np.isfinite(a)
    return relative_error(a[finite], b[finite]) if np.isfinite(b[finite]).all() else math.inf
