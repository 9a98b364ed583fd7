"""What stays float by default because a logarithm shows its error, in both targets."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from octavo.core.qparams import QType
from octavo.onnx.plan.inventory import Site
from octavo.onnx.plan.options import Request
from octavo.onnx.plan.selection import asked_for
from octavo.recipe import FLOAT, Decision
from octavo.recipe.recipe import Origin

_REASON = (
    "a logarithm is taken of its output, which shows the error of small numbers beside large ones, "
    "so that it is float by default; name it, or its type, to quantize it"
)
_SPOKEN_OF = (Origin.USER, Origin.SELECTION)


def log_defaults(
    sites: Sequence[Site],
    decisions: Sequence[Decision],
    request: Request,
    below: AbstractSet[ir.Value],
) -> list[Decision]:
    """`decisions`, with FLOAT for layers that nobody has asked for and whose outputs are `below`
    a logarithm."""
    return [
        Decision(site.layer, FLOAT, _REASON)
        if _in_integers(decision)
        and not below.isdisjoint(site.node.outputs)
        and decision.origin not in _SPOKEN_OF
        and not asked_for(site.layer, request)
        else decision
        for site, decision in zip(sites, decisions, strict=True)
    ]


def _in_integers(decision: Decision) -> bool:
    """float16 has a step for each number."""
    scheme = decision.scheme
    halved = scheme.weight is not None and scheme.weight.qtype is QType.FLOAT16
    return not (scheme.is_float or halved)
