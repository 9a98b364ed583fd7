"""From an inventory and a recipe to one decision a layer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from octavo.core.layer import Kind, Layer
from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.mix import Mix, mixed, mixes
from octavo.recipe.recipe import Origin, Recipe, Rule
from octavo.recipe.scheme import Scheme


@dataclass(frozen=True)
class Decision:
    """What a recipe says about one layer: its scheme, why where it stays float, and who says so."""

    layer: Layer
    scheme: Scheme
    reason: str = ""
    origin: Origin = field(default=Origin.LIMIT, compare=False)

    @property
    def left_by_preset(self) -> bool:
        """Whether a preset leaves the layer float, and nobody else has spoken of it."""
        return self.origin is Origin.PRESET and self.scheme.is_float


def plan(layers: Sequence[Layer], recipe: Recipe) -> list[Decision]:
    """One decision for each layer, in order.

    A rule by name or regex that matches no layer is an error: a misspelt name must not pass.
    """
    index = _Index(recipe.rules)
    decisions = []
    used: set[int] = set()
    for layer in layers:
        matching = index.matching(layer)
        used.update(matching)
        decisions.append(_decide(layer, recipe, recipe.rules[matching[0]] if matching else None))
    for i, rule in enumerate(recipe.rules):
        if (rule.name is not None or rule.regex is not None) and i not in used:
            raise RecipeError(_unmatched(rule, layers))
    return decisions if recipe.mix is None else _mixed(decisions, recipe.mix)


def _mixed(decisions: Sequence[Decision], mix: Mix) -> list[Decision]:
    """`decisions`, in which `mix` tells how the layers are held that no rule speaks of."""
    chosen = [d for d in decisions if d.origin is Origin.DEFAULT and mixes(d.layer)]
    names = {decision.layer.name for decision in chosen}
    others = sum(_bytes_held(d) for d in decisions if d.layer.name not in names)
    schemes = mixed(mix, [decision.layer for decision in chosen], others)
    return [_held(d, schemes.get(d.layer.name)) for d in decisions]


def _held(decision: Decision, scheme: Scheme | None) -> Decision:
    if scheme is None:
        return decision
    if decision.layer.kind is Kind.EMBEDDING:
        scheme = replace(scheme, activation=None)
    return replace(decision, scheme=scheme)


def _bytes_held(decision: Decision) -> int:
    """About what a layer's weights take that the mix leaves alone."""
    weight = decision.scheme.weight
    if weight is None:
        return decision.layer.bytes
    elements = sum(math.prod(shape) for _, shape in decision.layer.weights)
    return elements * (1 if weight.qtype.is_integer else 2)


class _Index:
    """Looks rules up that name one layer: a search writes hundreds of them for as many layers."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._named: defaultdict[str, list[int]] = defaultdict(list)
        self._others = []
        for i, rule in enumerate(rules):
            if rule.name is not None and not any(sign in rule.name for sign in "*?["):
                self._named[rule.name].append(i)
            else:
                self._others.append(i)

    def matching(self, layer: Layer) -> list[int]:
        """The rules that match `layer`, in their order."""
        named = self._named.get(layer.name, [])
        return sorted([*named, *(i for i in self._others if self._rules[i].matches(layer))])


def _decide(layer: Layer, recipe: Recipe, rule: Rule | None) -> Decision:
    if rule is None:
        scheme, origin, reason = recipe.default, Origin.DEFAULT, "the recipe's default is float"
    else:
        scheme, origin = rule.scheme, rule.origin
        reason = rule.reason or f"the recipe's rule for {rule.describe()}"
    if scheme.is_float:
        return Decision(layer, scheme, reason, origin)
    if layer.kind is Kind.EMBEDDING:
        scheme = replace(scheme, activation=None)  # a lookup reads indices
    return Decision(layer, scheme, "", origin)


def _unmatched(rule: Rule, layers: Sequence[Layer]) -> str:
    pattern = rule.name if rule.name is not None else (rule.regex or "")
    names = [layer.name for layer in layers]
    return f"{rule.place}rule {rule.describe()} matches no layer.{did_you_mean(pattern, names)}"
