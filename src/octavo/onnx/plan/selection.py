"""From a recipe and the drop-in's selection to one decision a layer.

Linear layers of few outputs stay float unless somebody asks for them, as small tables do:

    MatMul(x [.., 64], W [64, 3])      576 bytes saved, and 2 kB of nodes for it in target portable

Target native holds a weight in blocks of 16 outputs, so that 4 outputs take as many bytes as in
float, and fewer more. Quantizing a row takes longer than its product with so few columns. And such
a layer is mostly the last, whose error nothing evens out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from octavo.errors import RecipeError, did_you_mean
from octavo.onnx.operators import supported_ops
from octavo.onnx.operators.linear import LinearReader
from octavo.onnx.plan.inventory import Site
from octavo.onnx.plan.options import Request
from octavo.recipe import FLOAT, Decision, Granularity, Kind, Layer, Recipe
from octavo.recipe.plan import EXCLUDED, asked
from octavo.recipe.recipe import Origin

# docs/notes/onnxruntime.md: "Small linear layers stay float"
FEW_OUTPUTS = 4
LARGE = 16 * 1024  # bytes of a float weight, from which on target portable saves some
SMALL = 32 * 32  # weights, below which ONNX Runtime's integer product is slower at any row count


def decide(sites: Sequence[Site], nodes: Sequence[str], request: Request) -> list[Decision]:
    """Make one decision a layer: the recipe's, within what the selection allows.

    `nodes` are all node names of the model: a pattern that matches none of them is an error.
    """
    layers = [site.layer for site in sites]
    s, known = request.selection, [layer.name for layer in layers]
    for argument, patterns in (
        ("nodes_to_quantize (--only)", s.only),
        ("nodes_to_exclude (--exclude)", s.exclude),
    ):
        for pattern in patterns or ():
            if not any(_matches(pattern, n) for n in (*nodes, *known)):
                raise RecipeError(
                    f"{argument}: {pattern!r} matches no node.{did_you_mean(pattern, known)}"
                )
    _refuse_unknown_ops(request.recipe, layers)
    decisions = [_within(decision, request) for decision in asked(layers, request.recipe)]
    return [
        Decision(site.layer, FLOAT, reason)
        if (reason := _too_small(site, decision, request))
        else decision
        for site, decision in zip(sites, decisions, strict=True)
    ]


def _within(decision: Decision, request: Request) -> Decision:
    s, layer = request.selection, decision.layer
    if _matches_any(layer, s.exclude):
        return _unselected(layer, EXCLUDED)
    if s.only is not None and not _matches_any(layer, s.only):
        return _unselected(layer, "not among the nodes to quantize")
    if s.ops is not None and layer.op not in s.ops:
        return _unselected(layer, "not among the operator types to quantize")
    if not s.subgraphs and layer.scope:
        return _unselected(layer, "in a subgraph, and EnableSubgraph is False")
    if decision.left_by_preset and asked_for(layer, request):
        default = request.recipe.default
        reason = "the recipe's default is float" if default.is_float else ""
        return Decision(layer, default, reason, Origin.SELECTION)
    return decision


def _unselected(layer: Layer, reason: str) -> Decision:
    return Decision(layer, FLOAT, reason, Origin.SELECTION)


def asked_for(layer: Layer, request: Request) -> bool:
    """Tell whether the caller speaks of this very layer, or of its kind; a glob is no such wish."""
    s = request.selection
    if s.only is not None and layer.name in s.only:
        return True
    if layer.kind is Kind.ACTIVATION_MATMUL:
        return s.activation_matmuls
    return s.ops is not None


def _refuse_unknown_ops(recipe: Recipe, layers: Sequence[Layer]) -> None:
    """Raise RecipeError for an operator type that has no conversion and is not the model's."""
    known = {*supported_ops(), *(layer.op for layer in layers)}
    for rule in recipe.rules:
        if rule.op is not None and rule.op not in known:
            raise RecipeError(
                f"{rule.place}recipe {recipe.name!r}: rule {rule.describe()}: unknown op type."
                f"{did_you_mean(rule.op, known)}"
            )


def _matches_any(layer: Layer, patterns: Sequence[str]) -> bool:
    """Tell whether a pattern fits the layer's name, or its node's where nodes share one."""
    if not patterns:
        return False
    node = re.sub(r"#\d+$", "", layer.name.removeprefix(f"{layer.scope}/"))
    return any(_matches(p, layer.name) or _matches(p, node) for p in patterns)


def _matches(pattern: str, name: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _too_small(site: Site, decision: Decision, request: Request) -> str:
    """Say why integers win nothing for a small linear layer; "" where they do."""
    w, layer = decision.scheme.weight, site.layer
    if w is None or not w.qtype.is_integer or layer.kind is not Kind.LINEAR or layer.shares_with:
        return ""
    by_user = decision.origin is Origin.USER or asked_for(layer, request)
    # One scale for the tensor follows ONNX Runtime's quantize_dynamic, whatever the size.
    if w.granularity is Granularity.TENSOR or by_user:
        return ""
    ask, portable = "name it, or its type, to quantize it", not request.form.native
    outputs = _outputs(site)
    if outputs and outputs <= FEW_OUTPUTS and not (portable and layer.bytes >= LARGE):
        few = "1 output" if outputs == 1 else f"{outputs} outputs"
        return f"a layer of {few} gains nothing from integers: {ask}"
    weights = sum(math.prod(shape) for _, shape in layer.weights)
    if portable and weights < SMALL:
        return f"a layer of {weights} weights is slower in integers than in float: {ask}"
    return ""


def _outputs(site: Site) -> int | None:
    """Return the number of outputs of a matrix [K, N] or vector [K]; None for others."""
    (_, shape), *_ = site.layer.weights
    if not isinstance(site.reader, LinearReader) or site.weights[0] is not site.node.inputs[1]:
        return None
    return site.reader.outputs(site.node, shape)
