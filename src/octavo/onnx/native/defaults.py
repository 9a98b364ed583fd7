"""What the presets leave float for ONNX Runtime's sake, and the native target does not.

The presets know no target. Their reason against convolutions is ONNX Runtime's integer operator,
which the native target does not use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from octavo.onnx.inventory import Site
from octavo.onnx.native.conv import ConvForm, worth
from octavo.onnx.native.conv_places import float_places
from octavo.onnx.rule import attribute_int
from octavo.recipe import Decision, Recipe
from octavo.recipe.presets import CONV_REASON


def native_defaults(
    graph: ir.Graph, sites: Sequence[Site], decisions: Sequence[Decision], recipe: Recipe
) -> list[Decision]:
    """`decisions`, with others where nobody but a preset has spoken of a convolution."""
    reasons = {
        site.node: _unfit(site)
        for site, decision in zip(sites, decisions, strict=True)
        if decision.reason == CONV_REASON and ConvForm().holds(recipe.default)
    }
    fit = [node for node, reason in reasons.items() if reason is None]
    if fit:
        reasons |= float_places(graph, sites, fit)
    return [
        decision if site.node not in reasons else _decision(decision, reasons[site.node], recipe)
        for site, decision in zip(sites, decisions, strict=True)
    ]


def _unfit(site: Site) -> str | None:
    """Why its shape alone leaves a convolution float, or None."""
    (_, shape), *_ = site.layer.weights
    if 0 in shape:
        return "its weight has no elements"
    return worth(shape, attribute_int(site.node, "group", 1))


def _decision(decision: Decision, reason: str | None, recipe: Recipe) -> Decision:
    if reason is not None:
        return replace(decision, reason=reason)
    return Decision(decision.layer, recipe.default)
