"""From an inventory and a recipe to one decision a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.layer import Decision, Kind, Layer
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
    scheme = recipe.default if rule is None else rule.scheme
    if scheme.is_float:
        if rule is None:
            return Decision(layer, scheme, "the recipe's default is float")
        return Decision(layer, scheme, rule.reason or f"the recipe's rule for {rule.describe()}")
    if layer.kind is Kind.EMBEDDING:
        scheme = replace(scheme, activation=None)  # a lookup reads indices
    return Decision(layer, scheme)


def _unmatched(rule: Rule, layers: Sequence[Layer]) -> str:
    at = f" (line {rule.line})" if rule.line else ""
    pattern = rule.name if rule.name is not None else (rule.regex or "")
    names = [layer.name for layer in layers]
    return f"rule {rule.describe()}{at} matches no layer.{did_you_mean(pattern, names)}"
