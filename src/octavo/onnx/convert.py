"""From decisions to a quantized graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.core.metrics import sqnr_db
from octavo.errors import ModelError
from octavo.graph.constants import Fixed
from octavo.graph.dims import Dims
from octavo.graph.emitter import MS, Emitter, Names
from octavo.graph.head_shapes import head_shapes, make_constant
from octavo.graph.masks import Mask, masks_of, read_plainly
from octavo.graph.native import DOMAIN, VERSION
from octavo.graph.native.fusions import fuse
from octavo.graph.native.fusions.attended import Attention
from octavo.graph.native.fusions.attention import attentions_of
from octavo.graph.ranks import Ranks
from octavo.graph.rows import WIDE_FROM
from octavo.graph.self_attention import rows_stay_whole
from octavo.graph.sweeper import Sweeper
from octavo.graph.together import put_together
from octavo.graph.walk import graphs_of
from octavo.onnx.constants import Constants
from octavo.onnx.plan.inventory import Site
from octavo.onnx.plan.resolve import Resolved, resolve_all
from octavo.onnx.rule import Context, Drawn
from octavo.onnx.rules._draft import per_row
from octavo.onnx.weights import Stats, WeightStore
from octavo.onnx.write.store import TensorStore
from octavo.recipe import Decision, Granularity, LayerOutcome, Scheme

Progress = Callable[[str, int, int], None]


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
    *,
    opset: int,
    target: str,
    cpu: str,
    quant_format: str,
    progress: Progress,
) -> Converted:
    """Rewrites `model` in place; every site gets an outcome."""
    context = make_context(
        model, tensors, constants, opset=opset, target=target, cpu=cpu, quant_format=quant_format
    )
    planned = resolve_all(sites, decisions, context)
    # A scale for a whole activation is what ONNX Runtime's quantize_dynamic has: then all of it.
    context.weights.as_onnxruntime = any(_for_tensors(layer.decision.scheme) for layer in planned)
    for layer in planned:
        if layer.drawer is not None and _integer(layer.decision.scheme):
            layer.drawer.announce(layer.site.node, layer.decision.scheme, context)
    # The rules take apart what attentions and masks are recognized by.
    attentions, masks = _recognized(model, planned, context)
    shapes = head_shapes(attentions, constants)
    outcomes = []
    counted: set[object] = set()
    sweeper = Sweeper(model)
    for i, layer in enumerate(planned):
        progress("quantizing", i, len(planned))
        outcomes.append(_apply(layer, context, sweeper, counted))
    progress("quantizing", len(planned), len(planned))
    changed: list[str] = []
    if DOMAIN in context.emitter.domains or context.activations.have_rows:
        changed = read_plainly(masks, context.emitter, sweeper)
    if DOMAIN in context.emitter.domains:
        changed += fuse(model, context.emitter, constants, sweeper)
    elif context.activations.have_rows:
        if tensors.path is None:  # in a data file the products' weights are written already
            changed += put_together(attentions, context.emitter, constants, sweeper)
        changed += make_constant(shapes, context.emitter, sweeper)
    for domain, version in ((MS, 1), (DOMAIN, VERSION)):
        if domain in context.emitter.domains:
            model.opset_imports.setdefault(domain, version)
    return Converted(tuple(outcomes), (*sweeper.notes(), *changed))


def _recognized(
    model: ir.Model, planned: Sequence[Resolved], context: Context
) -> tuple[list[Attention], list[Mask]]:
    """The attentions and masks of `model`; tells `context` what is known of its activations."""
    if not any(layer.drawer and per_row(layer.decision.scheme, context) for layer in planned):
        return [], []
    fixed = Fixed(context.constants)
    if any(_may_be_wide(layer.site) for layer in planned):
        context.activations.dims = Dims(model, fixed, strictly=True)
    dims = Dims(model, fixed)
    masks = masks_of(model, fixed, dims)
    if context.native:
        return [], masks
    attentions = _attentions(model, context.constants, context.opset)
    for attention in attentions:
        if rows_stay_whole(attention, context.constants, dims):
            parts = attention.q, attention.k, attention.v
            context.uniform.attends(attention.last, [heads.reshape for heads in parts])
    return attentions, masks


def make_context(
    model: ir.Model,
    tensors: TensorStore,
    constants: Constants,
    *,
    opset: int,
    target: str,
    cpu: str,
    quant_format: str,
) -> Context:
    """What the rules work with in one conversion."""
    names = Names(model)
    weights = WeightStore(constants, Emitter(model, names, opset), tensors)
    return Context(
        model,
        names,
        constants,
        weights,
        opset=opset,
        target=target,
        cpu=cpu,
        quant_format=quant_format,
    )


def _attentions(model: ir.Model, constants: Constants, opset: int) -> list[Attention]:
    ranks = Ranks(model, constants)
    return [a for graph in graphs_of(model) for a in attentions_of(graph, constants, opset, ranks)]


def _may_be_wide(site: Site) -> bool:
    """Whether the layer may read rows for which sizes matter."""
    return any(max(shape, default=0) >= WIDE_FROM for _, shape in site.layer.weights)


def _for_tensors(scheme: Scheme) -> bool:
    a = scheme.activation
    return a is not None and a.granularity is Granularity.TENSOR


def _integer(scheme: Scheme) -> bool:
    return scheme.weight is not None and scheme.weight.qtype.is_integer


def _apply(
    layer: Resolved, context: Context, sweeper: Sweeper, counted: set[object]
) -> LayerOutcome:
    site, decision, notes = layer.site, layer.decision, layer.notes
    before = _bytes_before(layer, context.constants, counted)
    if decision.scheme.is_float:
        return LayerOutcome(
            site.layer, False, "float", decision.reason, before, before, None, tuple(notes)
        )
    try:
        if _integer(decision.scheme):
            drawn = _rewrite(layer, context, sweeper)
        else:
            drawn = _store_float16(site, context, sweeper)
    except ModelError as error:
        raise ModelError(f"layer {site.layer.name!r} ({site.layer.op}): {error}") from error
    stats = [s for s in drawn.stats if s is not None]
    signal, noise = sum(s.signal for s in stats), sum(s.noise for s in stats)
    return LayerOutcome(
        site.layer,
        True,
        decision.scheme.describe(),
        "",
        before,
        sum(s.bytes for s in stats),
        sqnr_db(signal, noise) if stats else None,
        (*notes, *drawn.notes),
    )


def _bytes_before(layer: Resolved, constants: Constants, counted: set[object]) -> int:
    """Of weights that layers share: counted once for those that are quantized, once for others."""
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


def _rewrite(layer: Resolved, context: Context, sweeper: Sweeper) -> Drawn:
    node = layer.site.node
    assert layer.drawer is not None
    names = context.names
    name = node.name or names.nodes.new(f"{node.op_type}_{node.outputs[0].name}")
    names.nodes.free(name)
    # The outputs' names stay taken, so that no constant gets one; `replace` hands them over.
    drawn = layer.drawer.rewrite(node, layer.decision.scheme, context, name)
    context.emitter.flush_before(node)
    sweeper.replace(node, drawn.outputs)
    return drawn


def _store_float16(site: Site, context: Context, sweeper: Sweeper) -> Drawn:
    """Each float32 weight in float16 behind a Cast, which ONNX Runtime folds at load."""
    stats: list[Stats | None] = []
    inputs = list(site.node.inputs)
    for i, value in enumerate(inputs):
        if value is not None and any(value is w for w in site.weights):
            new, s = context.weights.float16(value)
            stats.append(s)
            site.node.replace_input_with(i, new)
            sweeper.unused(value)
    return Drawn([], stats)
