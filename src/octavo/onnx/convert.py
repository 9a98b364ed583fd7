"""From decisions to a quantized graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.core.attention_type import AttentionType
from octavo.core.form import Form
from octavo.core.metrics import sqnr_db
from octavo.core.progress import Progress
from octavo.graph.analysis.attentions import FoundAttention, attentions_of
from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.dims import Dims
from octavo.graph.analysis.ranks import Ranks
from octavo.graph.analysis.uniform_rows import rows_stay_whole
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.emit.rows import WIDE_FROM
from octavo.graph.lower.lowering import held_by_stock, lower_operators
from octavo.graph.lower.packed import pack_operators
from octavo.graph.rewrite.attention_type import FLOAT32_ALONE, IN_BFLOAT16, NOWHERE
from octavo.graph.rewrite.head_shapes import Shapes, head_shapes
from octavo.graph.rewrite.masks import Mask, masks_of, read_plainly
from octavo.graph.rewrite.passes import rewrite, rewrite_lowered
from octavo.ir.weight import Account
from octavo.onnx.constants import Constants
from octavo.onnx.input_statistics import InputStatistics
from octavo.onnx.operators.reader import Drawn, ReadContext
from octavo.onnx.operators.stock_linear import per_row
from octavo.onnx.plan.inventory import Site
from octavo.onnx.plan.resolve import Resolved, resolve_all
from octavo.onnx.read.normalize import refuse_missing_operators
from octavo.onnx.read.tensor_store import TensorStore
from octavo.recipe import Decision, Granularity, Scheme
from octavo.results.report import LayerOutcome

ROUNDED_SCALES = "{} scale{} rounded to 11 bits: kernels have them in float16"

QUANTIZED_AGAIN = (
    "{} channel{} with new integers: as they were, less the zero point, they leave int8"
)


@dataclass(frozen=True)
class Converted:
    """What conversion leaves beside the changed model."""

    outcomes: tuple[LayerOutcome, ...]
    notes: tuple[str, ...]


def convert(
    model: ir.Model,
    sites: Sequence[Site],
    decisions: Sequence[Decision],
    tensors: TensorStore,
    constants: Constants,
    form: Form,
    progress: Progress,
    attention: AttentionType = AttentionType.FLOAT32,
    statistics: InputStatistics | None = None,
) -> Converted:
    """Rewrites `model` in place; every site gets an outcome.

    `statistics` are of the layers' inputs, for weights whose scales are searched.
    """
    c = make_context(model, tensors, constants, form)
    c.attention = attention
    if statistics is not None:
        c.weights.groups.statistics = statistics.of
    planned = resolve_all(sites, decisions, c)
    # A scale for a whole activation is what ONNX Runtime's quantize_dynamic has: then all of it.
    c.weights.as_onnxruntime = any(_for_tensors(layer.decision.scheme) for layer in planned)
    for layer in planned:
        if layer.reader is not None and _integer(layer.decision.scheme):
            scheme = layer.decision.scheme
            layer.reader.announce(layer.site.node, scheme, c, native=layer.native)
    # What attentions and masks are recognized by goes when layers are read.
    attentions, masks = _recognized(model, planned, c)
    shapes = head_shapes(attentions, constants)
    counted: set[object] = set()
    before = [_bytes_before(layer, constants, counted) for layer in planned]
    drawn = []
    for i, layer in enumerate(planned):
        progress("quantizing", i, len(planned))
        drawn.append(_read(layer, c))
    changed = _finish(c, tensors, attentions, masks, shapes)
    progress("quantizing", len(planned), len(planned))
    outcomes = [_outcome(*each, counted) for each in zip(planned, drawn, before, strict=True)]
    told = [] if statistics is None else statistics.notes(c.weights.groups.by_statistics)
    return Converted(tuple(outcomes), (*c.notes(), *changed, *told))


def _finish(
    c: ReadContext,
    tensors: TensorStore,
    attentions: Sequence[FoundAttention],
    masks: Sequence[Mask],
    shapes: Shapes,
) -> list[str]:
    """Rewrites what was read, and packs or lowers it; notes on what became of the model."""
    changed: list[str] = []
    lower_operators(c, held_by_stock)  # the rest is there for target native alone
    operators = c.has_operators()
    if operators or c.activations.have_rows:
        changed = read_plainly(masks, c.emitter, c.sweeper)
    if operators:
        changed += rewrite(c)
        pack_operators(c)
    else:  # in a data file the products' weights are written already, each by itself
        changed += rewrite_lowered(c, attentions if tensors.path is None else (), shapes)
    if c.attention is not AttentionType.FLOAT32 and not any(IN_BFLOAT16 in s for s in changed):
        changed.append(NOWHERE if c.native else FLOAT32_ALONE)
    c.finish()
    refuse_missing_operators(c.model)
    return changed


def _recognized(
    model: ir.Model, planned: Sequence[Resolved], c: ReadContext
) -> tuple[list[FoundAttention], list[Mask]]:
    """Find the attentions and masks of `model`; tell `c` what is known of its activations."""
    if not any(layer.reader and per_row(layer.decision.scheme, c) for layer in planned):
        return [], []
    fixed = Fixed(c.constants)
    if any(_may_be_wide(layer.site) for layer in planned):
        c.activations.dims = Dims(model, fixed, strictly=True)
    dims = Dims(model, fixed)
    masks = masks_of(model, fixed, dims)
    if c.native:
        return [], masks
    attentions = _attentions(model, c.constants, c.opset)
    for attention in attentions:
        if rows_stay_whole(attention, c.constants, dims):
            parts = attention.q, attention.k, attention.v
            c.uniform.attends(attention.last, [heads.reshape for heads in parts])
    return attentions, masks


def make_context(
    model: ir.Model, tensors: TensorStore, constants: Constants, form: Form
) -> ReadContext:
    """Build what the readers work with in one conversion."""
    return ReadContext(model, constants, form, tensors.put)


def _attentions(model: ir.Model, constants: Constants, opset: int) -> list[FoundAttention]:
    ranks = Ranks(model, constants)
    return [a for graph in graphs_of(model) for a in attentions_of(graph, constants, opset, ranks)]


def _may_be_wide(site: Site) -> bool:
    """Tell whether the layer may read rows for which sizes matter."""
    return any(max(shape, default=0) >= WIDE_FROM for _, shape in site.layer.weights)


def _for_tensors(scheme: Scheme) -> bool:
    a = scheme.activation
    return a is not None and a.granularity is Granularity.TENSOR


def _integer(scheme: Scheme) -> bool:
    return scheme.weight is not None and scheme.weight.qtype.is_integer


def _read(layer: Resolved, c: ReadContext) -> Drawn | None:
    """Put the quantized layer in its node's place; return None where it stays float."""
    site, scheme = layer.site, layer.decision.scheme
    if scheme.is_float:
        return None
    c.layer = f"{site.layer.name!r} ({site.layer.op})"
    return c.blaming(lambda: _drawn(layer, c) if _integer(scheme) else _store_float16(site, c))()


def _outcome(
    layer: Resolved, drawn: Drawn | None, before: int, counted: set[object]
) -> LayerOutcome:
    site, decision = layer.site, layer.decision
    if drawn is None:
        notes = tuple(layer.notes)
        reason = decision.reason
        return LayerOutcome(site.layer, False, "float", reason, before, before, None, notes)
    accounts = []
    for account in drawn.accounts:
        if account is not None and account.bytes and id(account) not in counted:
            counted.add(id(account))
            accounts.append(account)
    signal, noise = sum(a.signal for a in accounts), sum(a.noise for a in accounts)
    new = sum(a.changed_rows or 0 for a in accounts)
    again = []
    if new:
        again.append(QUANTIZED_AGAIN.format(new, "s" if new > 1 else ""))
    rounded = sum(a.rounded_scales for a in accounts)
    if rounded:
        again.append(ROUNDED_SCALES.format(rounded, "s" if rounded > 1 else ""))
    quantized_here = any(a.signal for a in accounts)
    return LayerOutcome(
        site.layer,
        True,
        decision.scheme.describe(),
        "",
        before,
        sum(a.bytes for a in accounts),
        sqnr_db(signal, noise) if quantized_here else None,
        (*layer.notes, *drawn.notes, *again),
    )


def _bytes_before(layer: Resolved, constants: Constants, counted: set[object]) -> int:
    """Return the bytes of the weights of `layer` before conversion.

    Weights that layers share are counted once for those that are quantized, once for others.
    """
    total = 0
    for w in layer.site.weights:
        key = (constants.root(w).key, layer.decision.scheme.is_float)
        if key in counted:
            continue
        counted.add(key)
        dtype = constants.stored_as(w)
        size = 1
        for d in constants.shape(w):
            size *= d
        total += size * (dtype.bitwidth if dtype is not None else 32) // 8
    return total


def _drawn(layer: Resolved, c: ReadContext) -> Drawn:
    node = layer.site.node
    assert layer.reader is not None
    name = node.name or c.names.nodes.new(f"{node.op_type}_{node.outputs[0].name}")
    c.names.nodes.free(name)
    # The outputs' names stay taken, so that no constant gets one; `replace` hands them over.
    drawn = layer.reader.read(node, layer.decision.scheme, c, name, native=layer.native)
    c.replace(node, drawn.outputs)
    return drawn


def _store_float16(site: Site, c: ReadContext) -> Drawn:
    """Store each float32 weight in float16 behind a Cast, which ONNX Runtime folds at load."""
    accounts: list[Account | None] = []
    inputs = list(site.node.inputs)
    for i, value in enumerate(inputs):
        if value is not None and any(value is w for w in site.weights):
            new, account = c.weights.float16(value)
            accounts.append(account)
            site.node.replace_input_with(i, new)
            c.sweeper.unused(value)
    return Drawn([], accounts)
