"""A recipe narrowed to some of a model's layers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from torch import nn

from octavo.errors import RecipeError, did_you_mean
from octavo.recipe import FLOAT, Recipe, Rule
from octavo.recipe.recipe import Origin
from octavo.torch.inventory import Part, inventory


def selected(
    recipe: Recipe, model: nn.Module, only: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Recipe:
    """`recipe`, under which the layers that match `exclude`, or none of `only`, stay float.

    The patterns are globs over layer names, or the name of a stack of RNN layers. A layer that
    `only` names in full is quantized though a preset would leave its kind float. Raises RecipeError
    for a pattern that matches no layer.
    """
    parts = inventory(model)
    for argument, patterns in (("--only", only), ("--exclude", exclude)):
        for pattern in patterns:
            if not any(_matches(pattern, part) for part in parts):
                known = [part.layer.name for part in parts]
                raise RecipeError(
                    f"{argument}: {pattern!r} matches no layer.{did_you_mean(pattern, known)}"
                )
    rules = [rule for part in parts for rule in _rules(recipe, part, only, exclude)]
    return recipe.with_rules_first(*rules)


def _rules(
    recipe: Recipe, part: Part, only: Collection[str], exclude: Collection[str]
) -> list[Rule]:
    name = part.layer.name
    if any(_matches(pattern, part) for pattern in exclude):
        return [Rule(FLOAT, name=name, reason="excluded by name")]
    if not only:
        return []
    if not any(_matches(pattern, part) for pattern in only):
        return [Rule(FLOAT, name=name, reason="not among the layers to quantize")]
    rule = recipe.rule_for(part.layer)
    presets_own = rule is not None and rule.scheme.is_float and rule.origin is Origin.PRESET
    if presets_own and name in only and not recipe.default.is_float:
        return [Rule(recipe.default, name=name)]
    return []


def _matches(pattern: str, part: Part) -> bool:
    return any(
        name == pattern or fnmatchcase(name, pattern) for name in (part.layer.name, part.module)
    )
