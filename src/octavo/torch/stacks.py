"""Recipes' rules about a stack of RNN layers by its module's name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from octavo.recipe import Recipe, Rule
from octavo.torch.inventory import Part


def named_stacks(recipe: Recipe, parts: Collection[Part]) -> Recipe:
    """`recipe`, in which a rule for the module `encoder.lstm` speaks of all layers of its stack.

    The inventory lists them as `encoder.lstm.l0`, `encoder.lstm.l1`, so that each can be named.
    """
    stacks = {part.module for part in parts if part.index is not None}
    rules: list[Rule] = []
    for rule in recipe.rules:
        if rule.name in stacks:
            names = [part.layer.name for part in parts if part.module == rule.name]
            rules += [replace(rule, name=name) for name in names]
        else:
            rules.append(rule)
    return replace(recipe, rules=tuple(rules))
