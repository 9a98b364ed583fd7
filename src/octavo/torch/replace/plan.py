"""What becomes of each layer: which quantized one takes its place, and what a recipe says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from torch import nn

from octavo.core.layer import small_table
from octavo.errors import RecipeError, did_you_mean
from octavo.recipe import (
    FLOAT,
    PRESETS,
    Decision,
    Granularity,
    Kind,
    Layer,
    Recipe,
    Rule,
    Scheme,
)
from octavo.recipe.plan import EXCLUDED, asked, spent
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.replace.conv_defaults import conv_reasons
from octavo.torch.replace.custom_layers import check_target
from octavo.torch.replace.inventory import ROOT, ModuleLayer, inventory
from octavo.torch.replace.mapping import default_mapping, inherited, mapped_type, not_alike
from octavo.torch.replace.user_attributes import refuse_subclass
from octavo.torch.weight_choice import Answer, SchemeChoice, WeightChoice

READ_BY_FLOAT = "its MultiheadAttention stays float, and reads this weight itself"

_DTYPES = ("float32", "float16", "bfloat16", "float64")

_CONV = "convolutions are float by default; a rule of the recipe that names it quantizes it"

_PRESET_RULES = frozenset(rule for recipe in PRESETS.values() for rule in recipe.rules)


@dataclass(frozen=True)
class Replacement:
    """`target` takes the layer's place and holds it as `choice` says; `note` is what differs from
    what was asked. Or the `reason` why the layer stays float."""

    target: type | None = None
    choice: WeightChoice | None = None
    note: str = ""
    reason: str = ""


def replacement(
    module: nn.Module,
    layer: Layer,
    choice: WeightChoice,
    mapping: Mapping[type, type],
    *,
    named: bool = False,
) -> Replacement:
    """Return what `layer`, which `module` holds, becomes where `choice` is asked of it.

    `named`: the layer's own name or type was asked for, not that of others with it. Raises
    OptionError for a type in a user's `mapping` that makes nothing.
    """
    key = mapped_type(module, mapping)
    if key is None:
        base = inherited(module, mapping)
        return Replacement(reason=not_alike(module, base) if base else _unmapped(module, layer))
    if layer.dtype not in _DTYPES:
        return Replacement(
            reason=f"its weights are {layer.dtype}; needs one of {', '.join(_DTYPES)}"
        )
    target = mapping[key]
    if issubclass(target, QuantizedModule):
        choice, note = target.adapt(choice)
        reason = target.refuses(module, choice) or refuse_subclass(module, key, target, named=named)
        return Replacement(reason=reason) if reason else Replacement(target, choice, note)
    check_target(target, layer.name)
    return Replacement(target, choice)


def _unmapped(module: nn.Module, layer: Layer) -> str:
    ours = mapped_type(module, default_mapping())
    if ours is None:
        return f"Octavo has no quantized form of {layer.op}"
    return f"mapping has no {ours.__name__}; extend octavo.torch.default_mapping(), which has it"


def attention_around(
    modules: Mapping[str, nn.Module], parts: Collection[ModuleLayer]
) -> dict[str, str | None]:
    """Return, by layer, the MultiheadAttention whose `out_proj` it is; None for all others.

    A float MultiheadAttention reads this weight itself, so the layer stays float with it.
    `modules` are the model's, by name.
    """
    found: dict[str, str | None] = {}
    for part in parts:
        owner = part.module.rpartition(".")[0]
        inside = bool(part.module) and isinstance(modules[owner], nn.MultiheadAttention)
        found[part.layer.name] = (owner or ROOT) if inside else None
    return found


class Planner:
    """The layers of a float model, which must not change any more.

    The inventory, and what each layer becomes under each scheme, are found once. `read_by` has for
    each layer's name the MultiheadAttention that reads its weight, or None.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parts = inventory(model)
        self.modules = dict(model.named_modules())
        self.read_by = attention_around(self.modules, self.parts)
        self._mapping = default_mapping()
        self._replacements: dict[tuple[str, Scheme, bool], Replacement] = {}

    def decisions(self, recipe: Recipe) -> list[Decision]:
        """Return what `quantize_dynamic(model, recipe=recipe)` would hold, layer by layer.

        Raises RecipeError for a rule whose name matches no layer.
        """
        said = recipe_decisions(self.parts, recipe, self.modules)
        answers = recipe_answers(self.parts, said, recipe)
        settled = settle_layers(self.parts, self.read_by, answers, self._answered)
        return [
            decision if decision.scheme.is_float else _settled(part, settled[part.layer.name])
            for part, decision in zip(self.parts, said, strict=True)
        ]

    def _answered(self, part: ModuleLayer, answer: Answer) -> Replacement:
        assert isinstance(answer.choice, SchemeChoice)
        return self.replacement(part, answer.choice.scheme, named=answer.named)

    def replacement(self, part: ModuleLayer, scheme: Scheme, *, named: bool = True) -> Replacement:
        """Return what the layer `part` becomes where `scheme` is asked of it."""
        key = part.layer.name, scheme, named
        made = self._replacements.get(key)
        if made is None:
            module, choice = self.modules[part.module], SchemeChoice(scheme)
            made = replacement(module, part.layer, choice, self._mapping, named=named)
            self._replacements[key] = made
        return made


def _settled(part: ModuleLayer, becomes: Replacement) -> Decision:
    if becomes.reason:
        return Decision(part.layer, FLOAT, becomes.reason)
    assert isinstance(becomes.choice, SchemeChoice)
    return Decision(part.layer, becomes.choice.scheme, becomes.note)


def settle_layers(
    parts: Collection[ModuleLayer],
    read_by: Mapping[str, str | None],
    answers: Mapping[str, Answer],
    replacement_of: Callable[[ModuleLayer, Answer], Replacement],
) -> dict[str, Replacement]:
    """Return, by name, what becomes of each layer; `answers` holds what is asked of it."""
    found: dict[str, Replacement] = {}
    for part in parts:
        name, answer = part.layer.name, answers[part.layer.name]
        owner = read_by[name]
        if answer.choice is None:
            found[name] = Replacement(reason=answer.reason)
            continue
        found[name] = replacement_of(part, answer)
        kept_float = owner is not None and found.get(owner, Replacement()).target is None
        if kept_float and not found[name].reason:
            found[name] = Replacement(reason=READ_BY_FLOAT)
    return found


def recipe_answers(
    parts: Sequence[ModuleLayer], decisions: Sequence[Decision], recipe: Recipe
) -> dict[str, Answer]:
    """Return, by name, what `recipe` asks of each layer; `decisions` are the recipe's."""
    names = rule_names(recipe)
    return {
        decision.layer.name: Answer(None, decision.reason)
        if decision.scheme.is_float
        else Answer(
            SchemeChoice(decision.scheme),
            named=decision.layer.name in names or part.module in names,
        )
        for part, decision in zip(parts, decisions, strict=True)
    }


def rule_names(recipe: Recipe) -> frozenset[str | None]:
    """Return the names (of layers, stacks and modules) and globs that rules of `recipe` have."""
    return frozenset(rule.name for rule in recipe.rules)


def recipe_decisions(
    parts: Sequence[ModuleLayer], recipe: Recipe, modules: Mapping[str, nn.Module]
) -> list[Decision]:
    """Return what `recipe` says of each layer, whether the layer can be held so or not.

    `modules` are the model's, by name.
    """
    said = asked([part.layer for part in parts], expand_stacks(recipe, parts))
    reasons = conv_reasons(parts, modules) if any(map(_is_open_conv, said)) else {}
    found = [
        _conv_in_torch(d, recipe, reasons.get(d.layer.name)) if _is_open_conv(d) else _in_torch(d)
        for d in said
    ]
    if recipe.mix is None:
        return found
    return spent(found, _held(parts, found, recipe, modules), recipe.mix)


def _held(
    parts: Sequence[ModuleLayer],
    decisions: Sequence[Decision],
    recipe: Recipe,
    modules: Mapping[str, nn.Module],
) -> list[Decision]:
    """Return the `decisions` as the layers can be held."""
    mapping = default_mapping()

    def become(part: ModuleLayer, answer: Answer) -> Replacement:
        assert answer.choice is not None
        module = modules[part.module]
        return replacement(module, part.layer, answer.choice, mapping, named=answer.named)

    answers = recipe_answers(parts, decisions, recipe)
    settled = settle_layers(parts, attention_around(modules, parts), answers, become)
    return [
        decision if decision.scheme.is_float else _settled(part, settled[part.layer.name])
        for part, decision in zip(parts, decisions, strict=True)
    ]


def _is_open_conv(decision: Decision) -> bool:
    """Tell whether a convolution is left to what Octavo knows of convolutions."""
    return decision.left_by_preset and decision.layer.kind is Kind.CONV


def _conv_in_torch(decision: Decision, recipe: Recipe, reason: str | None) -> Decision:
    """Return the decision for a convolution in torch: the recipe's default, or float.

    What the preset itself says of convolutions speaks of another runtime.
    """
    default = recipe.default
    if default.activation is None:  # weights alone: there is no such convolution
        return replace(decision, reason=_CONV)
    if reason is not None:
        return replace(decision, reason=reason)
    return replace(decision, scheme=default, reason="")


def _in_torch(decision: Decision) -> Decision:
    layer, scheme = decision.layer, decision.scheme
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


def expand_stacks(recipe: Recipe, parts: Collection[ModuleLayer]) -> Recipe:
    """Expand rules of `recipe` for a stack, such as `encoder.lstm`, into rules for its layers.

    The inventory lists these as `encoder.lstm.l0`, `encoder.lstm.l1`, so that each can be named.
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


def selected(
    recipe: Recipe, model: nn.Module, only: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Recipe:
    """Return `recipe` such that layers that match `exclude`, or none of `only`, stay float.

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
    recipe: Recipe, part: ModuleLayer, only: Collection[str], exclude: Collection[str]
) -> list[Rule]:
    name = part.layer.name
    if any(_matches(pattern, part) for pattern in exclude):
        return [Rule(FLOAT, name=name, reason=EXCLUDED)]
    if not only:
        return []
    if not any(_matches(pattern, part) for pattern in only):
        return [Rule(FLOAT, name=name, reason="not among the layers to quantize")]
    rule = recipe.rule_for(part.layer)
    presets_own = rule is not None and rule.scheme.is_float and rule in _PRESET_RULES
    if presets_own and name in only and not recipe.default.is_float:
        return [Rule(recipe.default, name=name)]
    return []


def _matches(pattern: str, part: ModuleLayer) -> bool:
    return any(
        name == pattern or fnmatchcase(name, pattern) for name in (part.layer.name, part.module)
    )
