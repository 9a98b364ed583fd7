"""Layers that target native holds in int8 and target portable in float, and words about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from octavo.core.form import Target
from octavo.onnx.convert import make_context
from octavo.onnx.plan.conv_defaults import ASK
from octavo.onnx.plan.options import Request
from octavo.onnx.plan.prepare import Prepared, decisions_on
from octavo.onnx.plan.resolve import resolve
from octavo.onnx.read.tensor_store import TensorStore
from octavo.recipe import Kind, Layer
from octavo.results.report import LayerOutcome
from octavo.results.words import size

CANDIDATES = frozenset(Kind) - {Kind.EMBEDDING, Kind.ATTENTION, Kind.OTHER}
SHOWN = 3
_MUCH = 0.1
"""Of the model's bytes: less is not worth a word."""


def native_only_layers(model: ir.Model, prepared: Prepared, request: Request) -> tuple[Layer, ...]:
    """Return the layers that target native holds in int8 and target portable in float.

    The recipe and selection are those of `request`. There are none for QDQ, and none where the
    recipe's weights are no integers.
    """
    weight = request.recipe.default.weight
    if request.form.qdq or weight is None or not weight.qtype.is_integer:
        return ()
    native, portable = (
        _are_integers(model, prepared, request, target)
        for target in (Target.NATIVE, Target.PORTABLE)
    )
    held = zip(prepared.sites, native, portable, strict=True)
    return tuple(site.layer for site, here, there in held if here and not there)


def _are_integers(
    model: ir.Model, prepared: Prepared, request: Request, target: Target
) -> list[bool]:
    """Tell whether each layer would be in integers; False for kinds that targets hold alike."""
    form = replace(request.form, target=target)
    context = make_context(model, TensorStore(None), prepared.constants, form.at(prepared.opset))
    # What takes few bits in one target may take too many in the other.
    recipe = replace(request.recipe, mix=None)
    decisions = decisions_on(prepared.survey, replace(request, form=form, recipe=recipe))
    return [
        site.layer.kind in CANDIDATES
        and not resolve(site, decision, context).decision.scheme.is_float
        for site, decision in zip(prepared.sites, decisions, strict=True)
    ]


def note_of(layers: Sequence[Layer], request: Request) -> str:
    """Return one line on `layers` for the report; "" where there is nothing to say."""
    if not layers:
        return ""
    if request.form.native:
        return f"int8 here, float in target portable: {_listed(layers)}"
    return f"float here, int8 with --target native: {_listed(layers)}"


def convolutions_note(outcomes: Sequence[LayerOutcome], request: Request, model_bytes: int) -> str:
    """Say what asking for convolutions would gain and cost in native; "" where it is little."""
    left = [o for o in outcomes if not o.quantized and ASK in o.reason]
    saved = 3 * sum(o.bytes_before for o in left) // 4
    if not request.form.native or saved <= _MUCH * model_bytes:
        return ""
    return (
        f"{_listed([o.layer for o in left])} are float by default: with --ops Conv the model is "
        f"about {size(saved)} smaller. What that costs in accuracy your data tell: octavo compare"
    )


def advice_of(layers: Sequence[Layer], request: Request) -> str:
    """Return a sentence for where nothing was quantized; "" where target native would not help."""
    if not layers or request.form.native:
        return ""
    return (
        f"Target native (--target native, target='native') holds {_listed(layers)} in int8; "
        "octavo.onnx.session opens its files. "
    )


def _listed(layers: Sequence[Layer]) -> str:
    """List layers by operator: `57 Conv (/a, /b, /c and 54 more), 2 GRU (/d, /e)`."""
    by_op: dict[str, list[str]] = defaultdict(list)
    for layer in layers:
        by_op[layer.op].append(layer.name)
    return ", ".join(f"{len(names):,} {op} ({_some(names)})" for op, names in by_op.items())


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
