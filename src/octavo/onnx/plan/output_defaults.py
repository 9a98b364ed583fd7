"""What stays float by default because of what is made of its output, in both targets."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from octavo.core.qparams import QType
from octavo.onnx.plan.inventory import Site
from octavo.onnx.plan.options import Request
from octavo.onnx.plan.selection import asked_for
from octavo.recipe import FLOAT, Decision, Kind
from octavo.recipe.recipe import Origin

_ASK = "so that it is float by default; name it, or its type, to quantize it"
_LOGARITHM = (
    "a logarithm is taken of its output, which shows the error of small numbers beside large ones, "
    + _ASK
)
_LENGTH = f"its output decides how long what follows is, to the step, {_ASK}"
_SPOKEN_OF = (Origin.USER, Origin.SELECTION)


def output_defaults(
    sites: Sequence[Site],
    decisions: Sequence[Decision],
    request: Request,
    logarithms: AbstractSet[ir.Value],
    lengths: AbstractSet[ir.Value],
) -> list[Decision]:
    """Return `decisions`, with FLOAT for some layers that nobody has asked for.

    These are layers whose outputs come before `logarithms`, and tables that come before `lengths`.
    """

    def reason(site: Site) -> str:
        outputs, table = site.node.outputs, site.layer.kind is Kind.EMBEDDING
        if not logarithms.isdisjoint(outputs):
            return _LOGARITHM
        return _LENGTH if table and not lengths.isdisjoint(outputs) else ""

    return [
        Decision(site.layer, FLOAT, why)
        if _in_integers(decision)
        and (why := reason(site))
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
