"""Linear layers of few outputs stay float unless somebody asks for them, as small tables do.

    MatMul(x [.., 64], W [64, 3])      576 bytes saved, and 2 kB of nodes for it in target portable

Target native holds a weight in blocks of 16 outputs, so that 4 outputs take as many bytes as in
float, and fewer more. Quantizing a row takes longer than its product with so few columns. And such
a layer is mostly the last, whose error nothing evens out.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.onnx.inventory import Site
from octavo.onnx.operators.linear import LinearReader
from octavo.onnx.options import Request
from octavo.onnx.select import is_asked_for
from octavo.recipe import FLOAT, Decision, Granularity, Kind

FEW_OUTPUTS = 4
LARGE = 16 * 1024  # bytes of a float weight, from which on target portable saves some


def without_few_outputs(
    sites: Sequence[Site], decisions: Sequence[Decision], request: Request
) -> list[Decision]:
    """`decisions`, float for layers of so few outputs that integers win nothing."""
    return [
        Decision(site.layer, FLOAT, reason)
        if (reason := _reason(site, decision, request))
        else decision
        for site, decision in zip(sites, decisions, strict=True)
    ]


def _reason(site: Site, decision: Decision, request: Request) -> str:
    w, layer = decision.scheme.weight, site.layer
    if w is None or not w.qtype.is_integer or layer.kind is not Kind.LINEAR or layer.shares_with:
        return ""
    # One scale for the tensor follows ONNX Runtime's quantize_dynamic, whatever the size.
    if w.granularity is Granularity.TENSOR or is_asked_for(decision, request):
        return ""
    outputs = _outputs(site)
    if not outputs or outputs > FEW_OUTPUTS:
        return ""
    if not request.form.native and layer.bytes >= LARGE:
        return ""
    few = "1 output" if outputs == 1 else f"{outputs} outputs"
    return f"a layer of {few} gains nothing from integers: name it, or its type, to quantize it"


def _outputs(site: Site) -> int | None:
    """Of a matrix [K, N] or vector [K]; None for others."""
    (_, shape), *_ = site.layer.weights
    if not isinstance(site.reader, LinearReader) or site.weights[0] is not site.node.inputs[1]:
        return None
    return site.reader.outputs(site.node, shape)
