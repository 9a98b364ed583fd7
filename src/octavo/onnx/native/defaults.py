"""What the presets leave float for ONNX Runtime's sake, and the native target does not.

The presets know no target. Their reason against convolutions is ONNX Runtime's integer operator,
which the native target does not use.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.onnx.inventory import Site
from octavo.onnx.native.conv import worth
from octavo.onnx.rule import attribute_int
from octavo.recipe import Decision, Recipe
from octavo.recipe.presets import CONV_REASON


def by_default(site: Site, decision: Decision, recipe: Recipe) -> Decision:
    """`decision`, or another one where nobody but a preset has spoken of a convolution."""
    if decision.reason != CONV_REASON or recipe.default.activation is None:
        return decision
    (_, shape), *_ = site.layer.weights
    if 0 in shape:
        return replace(decision, reason="its weight has no elements")
    reason = worth(shape, attribute_int(site.node, "group", 1))
    if reason is not None:
        return replace(decision, reason=reason)
    return Decision(decision.layer, recipe.default)
