"""What the presets leave float for ONNX Runtime's sake, and the native target does not.

The presets know no target. Their reason against convolutions is ONNX Runtime's integer operator,
which the native target does not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import onnx_ir as ir

from octavo.onnx.operators.conv import holds
from octavo.onnx.operators.reader import attribute_int, attribute_ints
from octavo.onnx.plan.conv_places import float_places
from octavo.onnx.plan.inventory import Site
from octavo.recipe import Decision, Kind, Recipe
from octavo.recipe.convolutions import Filters, gains_nothing

ASK = "ask for it with --ops Conv"


class Places(Protocol):
    """What is known of where convolutions stand."""

    @property
    def conv_reasons(self) -> Mapping[ir.Node, str | None]:
        """Return the reasons that the function `conv_reasons` gives."""


def conv_reasons(graph: ir.Graph, sites: Sequence[Site]) -> dict[ir.Node, str | None]:
    """Return why each convolution should stay float, None where it should not.

    A recipe's word on other convolutions does not count: that one is float must not make another
    the last.
    """
    reasons = {s.node: unfit_filters(s) for s in sites if s.layer.kind is Kind.CONV and s.reader}
    fit = [node for node, reason in reasons.items() if reason is None]
    if fit:
        reasons |= float_places(graph, sites, fit)
    return reasons


def native_defaults(
    sites: Sequence[Site], decisions: Sequence[Decision], recipe: Recipe, places: Places
) -> list[Decision]:
    """Return `decisions`, with others where nobody but a preset has spoken of a convolution."""
    if not holds(recipe.default):
        return list(decisions)
    return [
        _decision(decision, places.conv_reasons.get(site.node), recipe)
        if decision.left_by_preset and site.layer.kind is Kind.CONV
        else decision
        for site, decision in zip(sites, decisions, strict=True)
    ]


def unfit_filters(site: Site, ask: str = ASK) -> str | None:
    """Return why its filters alone leave a convolution float, or None where they do not."""
    (_, shape), *_ = site.layer.weights
    strides = attribute_ints(site.node, "strides", (1,) * (len(shape) - 2))
    return gains_nothing(Filters(shape, attribute_int(site.node, "group", 1), strides), ask)


def _decision(decision: Decision, reason: str | None, recipe: Recipe) -> Decision:
    if reason is not None:
        return replace(decision, reason=reason)
    return replace(decision, scheme=recipe.default, reason="")
