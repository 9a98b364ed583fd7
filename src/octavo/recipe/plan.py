"""From an inventory and a recipe to one decision a layer."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.layer import Decision, Layer
from octavo.recipe.schema import Recipe, Rule


def plan(layers: Sequence[Layer], recipe: Recipe) -> list[Decision]:
    """One decision for each layer, in order.

    A rule by name or regex that matches no layer is an error: a misspelt name must not pass.
    """
    decisions = []
    used: set[int] = set()
    for layer in layers:
        for rule in recipe.rules:
            if rule.matches(layer):
                used.add(id(rule))
        decisions.append(_decide(layer, recipe))
    for rule in recipe.rules:
        if (rule.name is not None or rule.regex is not None) and id(rule) not in used:
            raise RecipeError(_unmatched(rule, layers))
    return decisions


def _decide(layer: Layer, recipe: Recipe) -> Decision:
    rule = recipe.rule_for(layer)
    if rule is None:
        reason = "the recipe's default is float" if recipe.default.is_float else ""
        return Decision(layer, recipe.default, reason)
    reason = rule.reason or (f"the recipe's rule for {rule.describe()}")
    return Decision(layer, rule.scheme, reason if rule.scheme.is_float else "")


def _unmatched(rule: Rule, layers: Sequence[Layer]) -> str:
    at = f" (line {rule.line})" if rule.line else ""
    pattern = rule.name if rule.name is not None else (rule.regex or "")
    names = [layer.name for layer in layers]
    return f"rule {rule.describe()}{at} matches no layer.{did_you_mean(pattern, names)}"
