"""What becomes of the layers of a file that is quantized already.

Layers that it holds in integers are quantized again with the same integers, those that it left
float stay so: somebody has decided about them. Two kinds become float: convolutions that integers
make no faster, and products of two activations, which are parts of attentions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from octavo.core.kernels import WeightFormat
from octavo.core.qparams import QType
from octavo.onnx.constants import Constants
from octavo.onnx.from_quantized.context import WasQuantized
from octavo.onnx.kept_integers import is_stored, stored_blocks, stored_weight, stored_weights
from octavo.onnx.plan.conv_defaults import unfit_filters
from octavo.onnx.plan.inventory import Site
from octavo.recipe import FLOAT, ActivationScheme, Decision, Granularity, Kind, Scheme, WeightScheme
from octavo.results.report import LayerOutcome

AS_IT_WAS = "float in the file that it came from"
ATTENTION = "a product of two activations: attentions are computed in float, as one operator"
PER_ROW = ", activations per row"
ASK = "quantize the float model to have it in integers all the same"

WITHOUT_ZERO_POINTS = frozenset((Kind.CONV, Kind.LSTM, Kind.GRU, Kind.RNN))
"""Layers whose zero points go into their integers."""

IN_BLOCKS = frozenset((Kind.LINEAR, Kind.EMBEDDING))
"""Layers that may hold weights in blocks."""

NAMES = {
    Kind.LINEAR: "Linear",
    Kind.EMBEDDING: "Embedding",
    Kind.ATTENTION: "Linear",
    Kind.CONV: "Conv",
    Kind.LSTM: "LSTM",
    Kind.GRU: "GRU",
    Kind.RNN: "RNN",
    Kind.ACTIVATION_MATMUL: "MatMul",
}
"""The operator of domain ai.octavo for a layer of each kind."""

Restored = Mapping[ir.Value, WasQuantized]
"""By the first output of a float node, what stood in its place."""


def decisions_to_keep(
    sites: Sequence[Site], constants: Constants, restored: Restored, *, ours: bool
) -> list[Decision]:
    """Return one decision a layer. `ours`: Octavo wrote the file, so that a recipe has spoken."""
    return [_decision(site, constants, restored, ours=ours) for site in sites]


def stored_forms(sites: Sequence[Site], constants: Constants) -> list[str]:
    """Return how the file holds each layer's weights: "uint8 per tensor", or "" where in float."""
    return [
        " and ".join(
            sorted({one.form for w in site.weights for one in stored_weights(constants, w)})
        )
        for site in sites
    ]


def with_forms(outcomes: Sequence[LayerOutcome], forms: Sequence[str]) -> list[LayerOutcome]:
    """Return `outcomes` in words that say how the file held the weights."""
    return [
        replace(o, scheme=form + ("" if o.layer.kind is Kind.EMBEDDING else PER_ROW))
        if o.quantized and form
        else o
        for o, form in zip(outcomes, forms, strict=True)
    ]


def had_one_scale(sites: Sequence[Site], restored: Restored) -> list[str]:
    """Names of the layers whose activations had one scale for a whole tensor."""
    found = [(site, restored.get(site.node.outputs[0])) for site in sites]
    return [site.layer.name for site, was in found if was is not None and not was.per_row]


def _decision(site: Site, constants: Constants, restored: Restored, *, ours: bool) -> Decision:
    layer, was = site.layer, restored.get(site.node.outputs[0])
    if layer.kind is Kind.ACTIVATION_MATMUL and was is not None:
        return Decision(layer, Scheme() if ours else FLOAT, "" if ours else ATTENTION)
    if not any(is_stored(constants, w) for w in site.weights):
        return Decision(layer, FLOAT, site.reason or AS_IT_WAS)
    if layer.kind is Kind.CONV and not ours:
        reason = unfit_filters(site, ASK)
        if reason is not None:
            return Decision(layer, FLOAT, reason)
    held = [stored_blocks(constants, w) for w in site.weights]
    if layer.kind in IN_BLOCKS and held and held[0] is not None:
        return Decision(layer, _in_blocks(held[0].format))
    found = [stored_weight(constants, w) for w in site.weights]
    affine = layer.kind not in WITHOUT_ZERO_POINTS and any(
        one is not None and one.weight.affine for one in found
    )
    activation = None if layer.kind is Kind.EMBEDDING else ActivationScheme()
    return Decision(layer, Scheme(WeightScheme(symmetric=not affine), activation))


def _in_blocks(held: WeightFormat) -> Scheme:
    qtype = QType.INT4 if held.bits == 4 else QType.INT8
    weight = WeightScheme(
        qtype, Granularity.BLOCK, not held.affine, observer="search", block=held.group
    )
    return Scheme(weight, ActivationScheme(granularity=Granularity.GROUP, group=held.group))
