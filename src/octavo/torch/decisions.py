"""What recipes would make of a float model's layers, fast where many recipes are asked about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from octavo.core.layer import small_table
from octavo.recipe import FLOAT, Decision, Granularity, Kind, Recipe, Scheme, plan
from octavo.torch.choice import SchemeChoice
from octavo.torch.fit import READ_BY_FLOAT, Fit, fitted, read_by
from octavo.torch.inventory import Part, inventory
from octavo.torch.mapping import default_mapping
from octavo.torch.stacks import named_stacks

# What the recipe itself says speaks of another runtime.
_CONV = "convolutions are float by default; a rule of the recipe that names it quantizes it"


class Layers:
    """The layers of a float model, which must not change any more.

    The inventory, and what each layer becomes under each scheme, are found once. `read_by` has for
    each layer's name the MultiheadAttention that reads its weight, or None.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parts = inventory(model)
        self.modules = dict(model.named_modules())
        self.read_by = {p.layer.name: read_by(self.modules, p) for p in self.parts}
        self._mapping = default_mapping()
        self._fits: dict[tuple[str, Scheme, bool], Fit] = {}

    def decisions(self, recipe: Recipe) -> list[Decision]:
        """What `quantize_dynamic(model, recipe=recipe)` would hold, layer by layer.

        Raises RecipeError for a rule whose name matches no layer.
        """
        found: list[Decision] = []
        quantized: set[str] = set()
        names = named_in(recipe)
        for part, decision in zip(self.parts, planned(self.parts, recipe), strict=True):
            name = part.layer.name
            if decision.scheme.is_float:
                found.append(decision)
                continue
            named = name in names or part.module in names
            fit = self.fit(part, decision.scheme, named=named)
            reason, owner = fit.reason, self.read_by[name]
            if not reason and owner is not None and owner not in quantized:
                reason = READ_BY_FLOAT
            if reason:
                found.append(Decision(part.layer, FLOAT, reason))
                continue
            quantized.add(name)
            assert isinstance(fit.choice, SchemeChoice)
            found.append(Decision(part.layer, fit.choice.scheme, fit.note))
        return found

    def fit(self, part: Part, scheme: Scheme, *, named: bool = True) -> Fit:
        """What the layer becomes where it is to be held as `scheme` says, `named` as `fitted`'s."""
        key = part.layer.name, scheme, named
        fit = self._fits.get(key)
        if fit is None:
            module, choice = self.modules[part.module], SchemeChoice(scheme)
            fit = fitted(module, part.layer, choice, self._mapping, named=named)
            self._fits[key] = fit
        return fit


def named_in(recipe: Recipe) -> frozenset[str | None]:
    """Names of single layers, stacks and modules, and globs, that rules of `recipe` have."""
    return frozenset(rule.name for rule in recipe.rules)


def planned(parts: Sequence[Part], recipe: Recipe) -> list[Decision]:
    """What `recipe` says of each layer, whether the layer can be held so or not."""
    layers = [part.layer for part in parts]
    return [_in_torch(d) for d in plan(layers, named_stacks(recipe, parts))]


def _in_torch(decision: Decision) -> Decision:
    layer, scheme = decision.layer, decision.scheme
    if decision.left_by_preset and layer.kind is Kind.CONV:
        return replace(decision, reason=_CONV)
    w = scheme.weight
    # With one scale for all, rows keep to what torch.ao and ONNX Runtime do, whatever the size.
    if (
        layer.kind is Kind.EMBEDDING
        and w
        and w.qtype.is_integer
        and w.granularity is not Granularity.TENSOR
    ):
        reason = small_table(sum(math.prod(shape) for _, shape in layer.weights) * 4)
        if reason:
            return Decision(layer, FLOAT, reason)
    return decision
