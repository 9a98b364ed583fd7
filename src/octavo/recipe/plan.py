"""From an inventory and a recipe to one decision a layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.layer import Decision, Kind, Layer
from octavo.recipe.schema import Recipe, Rule

_GLOB = frozenset("*?[")


def plan(layers: Sequence[Layer], recipe: Recipe) -> list[Decision]:
    """One decision for each layer, in order.

    A rule by name or regex that matches no layer is an error: a misspelt name must not pass.
    """
    first = _first_rules(layers, recipe)
    return [_decide(layer, recipe, first.get(i)) for i, layer in enumerate(layers)]


def _first_rules(layers: Sequence[Layer], recipe: Recipe) -> dict[int, Rule]:
    """The first rule that matches a layer, by the layer's index.

    Plain names are looked up: a recipe that was tuned has a rule for each of hundreds of layers.
    """
    first: dict[int, Rule] = {}
    by_name: dict[str, list[int]] = defaultdict(list)
    for i, layer in enumerate(layers):
        by_name[layer.name].append(i)
    for rule in recipe.rules:
        if rule.name is not None and not _GLOB.intersection(rule.name):
            matched = by_name.get(rule.name, [])
        else:
            matched = [i for i, layer in enumerate(layers) if rule.matches(layer)]
        for i in matched:
            first.setdefault(i, rule)
        if not matched and (rule.name is not None or rule.regex is not None):
            raise RecipeError(_unmatched(rule, layers))
    return first


def _decide(layer: Layer, recipe: Recipe, rule: Rule | None) -> Decision:
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
