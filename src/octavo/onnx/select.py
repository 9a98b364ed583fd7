"""From a recipe and the drop-in's selection to one decision a layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from octavo.errors import RecipeError, did_you_mean
from octavo.onnx.operators import supported_ops
from octavo.onnx.options import Request
from octavo.recipe import FLOAT, Decision, Kind, Layer, Recipe, plan
from octavo.recipe.recipe import Origin


def decide(layers: Sequence[Layer], nodes: Sequence[str], request: Request) -> list[Decision]:
    """One decision a layer: the recipe's, within what the selection allows.

    `nodes` are all node names of the model: a pattern that matches none of them is an error.
    """
    s = request.selection
    names = [*nodes, *(layer.name for layer in layers)]
    for argument, patterns in (
        ("nodes_to_quantize (--only)", s.only),
        ("nodes_to_exclude (--exclude)", s.exclude),
    ):
        for pattern in patterns or ():
            if not any(_matches(pattern, n) for n in names):
                known = [layer.name for layer in layers]
                raise RecipeError(
                    f"{argument}: {pattern!r} matches no node.{did_you_mean(pattern, known)}"
                )
    _refuse_unknown_ops(request.recipe, layers)
    return [_within(decision, request) for decision in plan(layers, request.recipe)]


def _within(decision: Decision, request: Request) -> Decision:
    s, layer = request.selection, decision.layer
    if _named(layer, s.exclude):
        return _unselected(layer, "excluded by name")
    if s.only is not None and not _named(layer, s.only):
        return _unselected(layer, "not among the nodes to quantize")
    if s.ops is not None and layer.op not in s.ops:
        return _unselected(layer, "not among the operator types to quantize")
    if not s.subgraphs and layer.scope:
        return _unselected(layer, "in a subgraph, and EnableSubgraph is False")
    if decision.left_by_preset and _asked_for(layer, request):
        default = request.recipe.default
        reason = "the recipe's default is float" if default.is_float else ""
        return Decision(layer, default, reason, Origin.SELECTION)
    return decision


def _unselected(layer: Layer, reason: str) -> Decision:
    return Decision(layer, FLOAT, reason, Origin.SELECTION)


def _asked_for(layer: Layer, request: Request) -> bool:
    """Whether the caller speaks of this very layer, or of its kind; a glob is no such wish."""
    s = request.selection
    if s.only is not None and layer.name in s.only:
        return True
    if layer.kind is Kind.ACTIVATION_MATMUL:
        return s.activation_matmuls
    return s.ops is not None


def is_asked_for(decision: Decision, request: Request) -> bool:
    """Whether the caller, or a rule of a recipe of the user's, speaks of the layer or its kind."""
    return decision.origin is Origin.USER or _asked_for(decision.layer, request)


def _refuse_unknown_ops(recipe: Recipe, layers: Sequence[Layer]) -> None:
    """An operator type in a rule must be one that has a conversion, or one of the model's."""
    known = {*supported_ops(), *(layer.op for layer in layers)}
    for rule in recipe.rules:
        if rule.op is not None and rule.op not in known:
            raise RecipeError(
                f"{rule.place}recipe {recipe.name!r}: rule {rule.describe()}: unknown op type."
                f"{did_you_mean(rule.op, known)}"
            )


def _named(layer: Layer, patterns: Sequence[str]) -> bool:
    """Whether a pattern fits the layer's name, or its node's where several nodes have one name."""
    if not patterns:
        return False
    node = re.sub(r"#\d+$", "", layer.name.removeprefix(f"{layer.scope}/"))
    return any(_matches(p, layer.name) or _matches(p, node) for p in patterns)


def _matches(pattern: str, name: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
