"""What the presets leave float for ONNX Runtime's sake, and the native target does not.

The presets know no target. Their reason against convolutions is ONNX Runtime's integer operator,
which the native target does not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

import onnx_ir as ir

from octavo.onnx.operators.conv import AXES, holds
from octavo.onnx.operators.reader import attribute_int
from octavo.onnx.plan.conv_places import float_places
from octavo.onnx.plan.inventory import Site
from octavo.recipe import Decision, Kind, Recipe

LEAST_INPUTS, LEAST_OUTPUTS, LEAST_POINTWISE = 64, 16, 64
SIGNAL_TAPS = 64  # of a filter over one channel, from which on it is no picture that it sees


class Places(Protocol):
    """What is known of where convolutions stand."""

    @property
    def conv_reasons(self) -> Mapping[ir.Node, str | None]:
        """As `conv_reasons` gives them."""


def worth(shape: Sequence[int], group: int) -> str | None:
    """Why filters of `shape` [M, C / group, ...] stay float unless asked for, or None.

    Where they win was measured on one thread with AMX, against ONNX Runtime's float convolution
    over images of 7 x 7 to 112 x 112 and rows of 4 to 2048: from 64 inputs a sum and 16 outputs a
    group on (pointwise ones from 64 of each) as fast to six times as fast, below and for filters
    over one channel 0.4 to 1.6 times.
    """
    outputs, channels, taps = shape[0] // group, shape[1], prod(shape[2:])
    ask = "is float by default, as integers gain it nothing; ask for it with --ops Conv"
    if len(shape) - 2 not in AXES:
        return f"a convolution over {len(shape) - 2} axes {ask}"
    if channels == 1 and group == 1 and taps >= SIGNAL_TAPS:
        return f"a convolution over one raw signal ({taps} taps, as of a Fourier transform) {ask}"
    if channels == 1:
        return f"a convolution whose filters see one channel each {ask}"
    inputs = channels * taps
    if inputs < LEAST_INPUTS or outputs < (LEAST_POINTWISE if taps == 1 else LEAST_OUTPUTS):
        plural = "" if outputs == 1 else "s"
        return f"a convolution of {outputs} output{plural}, each a sum of {inputs} products, {ask}"
    return None


def conv_reasons(graph: ir.Graph, sites: Sequence[Site]) -> dict[ir.Node, str | None]:
    """Why each convolution should stay float, None where it should not.

    Whatever a recipe says of others: that one is float must not make another the last.
    """
    reasons = {s.node: _unfit(s) for s in sites if s.layer.kind is Kind.CONV and s.reader}
    fit = [node for node, reason in reasons.items() if reason is None]
    if fit:
        reasons |= float_places(graph, sites, fit)
    return reasons


def native_defaults(
    sites: Sequence[Site], decisions: Sequence[Decision], recipe: Recipe, places: Places
) -> list[Decision]:
    """`decisions`, with others where nobody but a preset has spoken of a convolution."""
    if not holds(recipe.default):
        return list(decisions)
    return [
        _decision(decision, places.conv_reasons.get(site.node), recipe)
        if decision.left_by_preset and site.layer.kind is Kind.CONV
        else decision
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
    return replace(decision, scheme=recipe.default, reason="")
