"""From what a recipe asks to what the target can hold, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from octavo.core.qparams import QType
from octavo.onnx.blocks import is_in_blocks, without_blocks
from octavo.onnx.operators.reader import ReadContext, Reader
from octavo.onnx.plan.inventory import MATRIX, Site
from octavo.recipe import FLOAT, ActivationScheme, Decision, Granularity, Kind, Scheme

FLOAT16_MAX = 65504.0
FLOAT16_FROM = 4096  # bytes; a smaller weight saves nothing worth a Cast


@dataclass(frozen=True)
class Resolved:
    """One layer with its decision as it will be held, and notes on what is different.

    `reader` reads it, `native` as Octavo's kernels hold it; None where the layer stays float or
    only its weight is stored in fewer bits.
    """

    site: Site
    decision: Decision
    notes: list[str]
    reader: Reader | None = None
    native: bool = False


def resolve_all(
    sites: Sequence[Site], decisions: Sequence[Decision], c: ReadContext
) -> list[Resolved]:
    """Resolve each layer; a table held in integers by another layer is so for lookups too."""
    found = [resolve(s, d, c) for s, d in zip(sites, decisions, strict=True)]
    c.held_anyway.update(
        c.constants.root(weight).key
        for layer in found
        if layer.reader is not None and layer.site.layer.kind is not Kind.EMBEDDING
        for weight in layer.site.weights
    )
    return [
        resolve(layer.site, decision, c)
        if layer.site.layer.kind is Kind.EMBEDDING and layer.reader is None
        else layer
        for layer, decision in zip(found, decisions, strict=True)
    ]


def resolve(site: Site, decision: Decision, c: ReadContext) -> Resolved:
    """FLOAT with a reason, or the scheme as it will be held."""
    scheme = decision.scheme
    if scheme.is_float:
        return Resolved(site, decision, [])
    if site.reason:
        return Resolved(site, _left_float(decision, site.reason), [])
    halved = scheme.weight is not None and scheme.weight.qtype is QType.FLOAT16
    refused = (_float16_refused(site, c) if halved else None) or _larger(site, c)
    if refused:
        return Resolved(site, _left_float(decision, refused), [])
    if halved:
        return Resolved(site, decision, [])
    reader = site.reader
    if reader is None:
        return Resolved(site, _left_float(decision, f"no rule for {site.layer.op}"), [])
    native = c.native and reader.takes_native(site.node, scheme, c)
    scheme, notes = reader.held_native(scheme) if native else _portable_scheme(site, scheme, c)
    reason = reader.check(site.node, scheme, c, native=native)
    if reason:
        return Resolved(site, _left_float(decision, reason), [])
    return Resolved(site, replace(decision, scheme=scheme), notes, reader, native)


def _portable_scheme(site: Site, scheme: Scheme, c: ReadContext) -> tuple[Scheme, list[str]]:
    """Return the scheme in ONNX Runtime's own operators: groups become rows, affine rows symmetric.

    Blocks of other than linear layers become channels, but for tables of 4 bits.
    """
    w = scheme.weight
    assert w is not None
    if is_in_blocks(w):
        return _portable_blocks(site, scheme, c)
    return _portable_channels(site, scheme)


def _portable_blocks(site: Site, scheme: Scheme, c: ReadContext) -> tuple[Scheme, list[str]]:
    """MatMulNBits quantizes activations in blocks as the weight's, or not at all."""
    w, a, kind = scheme.weight, scheme.activation, site.layer.kind
    assert w is not None
    four = w.qtype is QType.INT4
    if kind is Kind.EMBEDDING and four and not c.qdq:
        return replace(scheme, activation=None), []
    if kind is Kind.LINEAR and (not four or _is_matrix(site)):
        if a is None or c.qdq or (a.granularity is Granularity.GROUP and a.group == w.block):
            return replace(scheme, activation=None if c.qdq else a), []
        asked = f"group of {a.group}" if a.group else a.granularity.value
        group = ActivationScheme(a.qtype, Granularity.GROUP, w.block)
        note = f"activations per group of {w.block}: MatMulNBits has them so, not per {asked}"
        return replace(scheme, activation=group), [note]
    if kind is not Kind.EMBEDDING and (a is None or a.granularity is Granularity.GROUP):
        a = ActivationScheme()
    held, notes = _portable_channels(site, Scheme(without_blocks(w), a))
    return held, [_not_in_blocks(site, four=four), *notes]


def _not_in_blocks(site: Site, *, four: bool) -> str:
    if site.layer.kind is Kind.LINEAR:
        return "int8 per channel: blocks are for weights of two axes"
    per = "int8 per channel" if four else "per channel"
    return f"{per}: blocks are for linear layers, not for {site.layer.op}"


def _is_matrix(site: Site) -> bool:
    return all(len(shape) == MATRIX for _, shape in site.layer.weights)


def _portable_channels(site: Site, scheme: Scheme) -> tuple[Scheme, list[str]]:
    notes = []
    w, a = scheme.weight, scheme.activation
    assert w is not None
    kind = site.layer.kind
    if a is not None and a.granularity is Granularity.GROUP:
        notes.append(f"activations per row: its operators have no groups of {a.group}")
        a = replace(a, granularity=Granularity.ROW, group=None)
    per_tensor = w.granularity is Granularity.TENSOR
    if kind is Kind.EMBEDDING and not w.symmetric and not per_tensor:
        notes.append("symmetric rows: a lookup has no zero point a row")
        w = replace(w, symmetric=True)
    return replace(scheme, weight=w, activation=a), notes


def _left_float(decision: Decision, reason: str) -> Decision:
    return Decision(decision.layer, FLOAT, reason)


def _larger(site: Site, c: ReadContext) -> str | None:
    """Return why a weight computed from fewer bytes than its integers stays float, or None."""
    for weight, (_, shape) in zip(site.weights, site.layer.weights, strict=True):
        size, stored = math.prod(shape), c.constants.bytes_stored(weight)
        if size > stored:
            return f"its weight is computed from {stored} bytes, and would take {size} or more"
    return None


def _float16_refused(site: Site, c: ReadContext) -> str | None:
    if not site.weights:
        return "a product of two activations holds no weight"
    if site.layer.dtype != "float32":
        return f"its weights are {site.layer.dtype} already"
    stored = {c.constants.stored_as(weight) for weight in site.weights}
    if stored != {ir.DataType.FLOAT}:
        names = ", ".join(sorted(t.name.lower() for t in stored if t is not None))
        return f"its weights are stored as {names} already"
    if site.layer.bytes < FLOAT16_FROM:
        return f"its weights have {site.layer.bytes} bytes: below {FLOAT16_FROM} nothing to win"
    for weight in site.weights:
        array = c.constants.array(weight)
        largest = max(float(array.max(initial=0)), -float(array.min(initial=0)))
        c.constants.release(weight)
        if FLOAT16_MAX < largest < math.inf:
            return f"its weights go up to {largest:g}: float16 ends at {FLOAT16_MAX:g}"
    return None
