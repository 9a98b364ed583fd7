"""From an inventory and a recipe to one decision a layer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from octavo.core.layer import Kind, Layer
from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.bit_budget import USUAL, Mix, Rest, is_grouped, like, mixed, mixes
from octavo.recipe.held_bytes import Storage, held_bytes
from octavo.recipe.recipe import Origin, Recipe, Rule
from octavo.recipe.scheme import Scheme, WeightScheme

EXCLUDED = "excluded by name"
"""The reason of a layer that a user left float."""


@dataclass(frozen=True)
class Decision:
    """What a recipe says about one layer: its scheme, why where it stays float, and who says so."""

    layer: Layer
    scheme: Scheme
    reason: str = ""
    origin: Origin = field(default=Origin.LIMIT, compare=False)

    @property
    def left_by_preset(self) -> bool:
        """Tell whether a preset leaves the layer float, and nobody else has spoken of it."""
        return self.origin is Origin.PRESET and self.scheme.is_float


def plan(layers: Sequence[Layer], recipe: Recipe) -> list[Decision]:
    """Return one decision for each layer, in order.

    A rule by name or regex that matches no layer is an error: a misspelt name must not pass.
    """
    decisions = asked(layers, recipe)
    return decisions if recipe.mix is None else spent(decisions, decisions, recipe.mix)


def asked(layers: Sequence[Layer], recipe: Recipe) -> list[Decision]:
    """Decide as `plan`, but hold layers that a mix is for in its usual way, by `Origin.MIX`.

    Front ends change of these what they cannot hold, and then have `spent` choose.
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
    return decisions


def spent(
    decisions: Sequence[Decision],
    held: Sequence[Decision],
    mix: Mix,
    storage: Storage = Storage.PACKED,
) -> list[Decision]:
    """Return `decisions`, in which `mix` tells how those by `Origin.MIX` are held.

    `held` is what becomes of each: what the mix is not for, or cannot be held in groups, counts
    as it is held there. Raises TooFewBitsError where the mix allows too little.
    """
    free = [
        asked.origin is Origin.MIX and is_grouped(found.scheme)
        for asked, found in zip(decisions, held, strict=True)
    ]
    chosen = [d for d, mixes in zip(decisions, free, strict=True) if mixes]
    rest = _rest([d for d, mixes in zip(held, free, strict=True) if not mixes], storage)
    by_name = {d.layer.name: d.scheme for d in chosen}
    schemes = mixed(mix, [d.layer for d in chosen], rest, storage)
    return [
        replace(d, scheme=like(by_name[d.layer.name], schemes[d.layer.name])) if mixes else d
        for d, mixes in zip(decisions, free, strict=True)
    ]


def _rest(held: Sequence[Decision], storage: Storage) -> Rest:
    """Sum up the sizes of weights that the mix leaves alone; those that layers share count once."""
    total, quantized, weights = 0, 0, 0
    counted: set[tuple[str, WeightScheme | None]] = set()
    for decision in held:
        layer, w = decision.layer, decision.scheme.weight
        if any((name, w) in counted for name in layer.shares_with):
            continue
        counted.add((layer.name, w))
        nbytes = held_bytes(layer, w, storage)
        total += nbytes
        if w is not None:
            quantized += nbytes
            weights += sum(math.prod(shape) for _, shape in layer.weights)
    return Rest(total, quantized, weights)


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
        """Return the indices of the rules that match `layer`, in ascending order."""
        named = self._named.get(layer.name, [])
        return sorted([*named, *(i for i in self._others if self._rules[i].matches(layer))])


def _decide(layer: Layer, recipe: Recipe, rule: Rule | None) -> Decision:
    if rule is None and recipe.mix is not None and mixes(layer):
        scheme, origin, reason = like(recipe.default, USUAL), Origin.MIX, ""
    elif rule is None:
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
