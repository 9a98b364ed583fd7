"""From decisions to a quantized graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from octavo.core.metrics import sqnr_db
from octavo.core.qtype import QType
from octavo.errors import ModelError
from octavo.graph.emitter import MS, Emitter, Names
from octavo.onnx.constants import Constants
from octavo.onnx.inventory import Site
from octavo.onnx.rule import Context, Drawn
from octavo.onnx.store import TensorStore
from octavo.onnx.weights import Stats, WeightStore
from octavo.recipe import Decision, Granularity, Kind, LayerOutcome, Scheme

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
    cpu: str,
    quant_format: str,
    progress: Progress,
) -> Converted:
    """Rewrites `model` in place; every site gets an outcome."""
    names = Names(model)
    weights = WeightStore(constants, Emitter(model, names, opset), tensors)
    context = Context(
        model, names, constants, weights, opset=opset, cpu=cpu, quant_format=quant_format
    )
    planned = [
        _resolve(s, d, context) for s, d in zip(sites, decisions, strict=True)
    ]
    for site, decision, _ in planned:
        if not decision.scheme.is_float and site.rule is not None and _integer(decision.scheme):
            site.rule.announce(site.node, decision.scheme, context)
    outcomes = []
    counted: set[object] = set()
    sweeper = _Sweeper(model)
    for i, (site, decision, notes) in enumerate(planned):
        progress("quantizing", i, len(planned))
        outcomes.append(_apply(site, decision, notes, context, sweeper, counted))
    progress("quantizing", len(planned), len(planned))
    if MS in context.emitter.domains:
        model.opset_imports.setdefault(MS, 1)
    return Converted(tuple(outcomes), tuple(sweeper.notes()))


def _integer(scheme: Scheme) -> bool:
    return scheme.weight is not None and scheme.weight.qtype.is_integer


def _resolve(site: Site, decision: Decision, context: Context) -> tuple[Site, Decision, list[str]]:
    """The decision as this target can hold it: FLOAT with a reason, or an adjusted scheme."""
    scheme, notes = decision.scheme, []
    if scheme.is_float:
        return site, decision, notes
    if scheme.weight is not None and scheme.weight.qtype is QType.FLOAT16:
        reason = _float16_refused(site)
        if reason:
            return site, _left_float(decision, reason), notes
        return site, decision, notes
    if site.rule is None:
        return site, _left_float(decision, f"no rule for {site.layer.op}"), notes
    if scheme.activation is not None and scheme.activation.granularity is Granularity.GROUP:
        row = replace(scheme.activation, granularity=Granularity.ROW, group=None)
        if site.layer.kind is not Kind.EMBEDDING:
            notes.append(
                f"activations per row: target portable has no groups of {scheme.activation.group}"
            )
        scheme = replace(scheme, activation=row)
    scheme, more = _without_blocks(site, scheme)
    notes += more
    decision = replace(decision, scheme=scheme)
    reason = site.rule.check(site.node, scheme, context)
    return site, (_left_float(decision, reason) if reason else decision), notes


def _without_blocks(site: Site, scheme: Scheme) -> tuple[Scheme, list[str]]:
    """Blocks are for linear layers; others hold int8 per channel or row, as the preset int8."""
    w = scheme.weight
    if w is None or (site.layer.kind is Kind.LINEAR and w.granularity is Granularity.BLOCK):
        return scheme, []
    notes = []
    if w.granularity is Granularity.BLOCK:
        w = replace(w, granularity=Granularity.CHANNEL, block=None)
        notes.append(f"per channel: blocks are for linear layers, not for {site.layer.op}")
        activation = scheme.activation or Scheme().activation
        scheme = replace(scheme, weight=w, activation=activation)
    if site.layer.kind is Kind.EMBEDDING and not w.symmetric:
        if w.granularity is not Granularity.TENSOR:
            scheme = replace(scheme, weight=replace(w, symmetric=True))
            notes.append("symmetric rows: a lookup has no zero points a row")
    return scheme, notes


def _left_float(decision: Decision, reason: str) -> Decision:
    return Decision(decision.layer, Scheme(None, None), reason)


def _float16_refused(site: Site) -> str | None:
    if not site.weights:
        return "a product of two activations holds no weight"
    if site.layer.dtype != "float32":
        return f"its weights are {site.layer.dtype} already"
    if site.layer.bytes < 4096:
        return f"its weights have {site.layer.bytes} bytes: nothing to win"
    return None


def _apply(
    site: Site,
    decision: Decision,
    notes: list[str],
    context: Context,
    sweeper: _Sweeper,
    counted: set[object],
) -> LayerOutcome:
    before = _bytes_before(site, context.constants, counted)
    if decision.scheme.is_float:
        return LayerOutcome(
            site.layer, False, "float", decision.reason, before, before, None, tuple(notes)
        )
    try:
        if _integer(decision.scheme):
            drawn = _rewrite(site, decision.scheme, context, sweeper)
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
        tuple([*notes, *drawn.notes]),
    )


def _bytes_before(site: Site, constants: Constants, counted: set[object]) -> int:
    total = 0
    for w in site.weights:
        root = constants.root(w)
        if root.key in counted:
            continue
        counted.add(root.key)
        dtype = constants.dtype(w)
        size = 1
        for d in constants.shape(w):
            size *= d
        total += size * (dtype.bitwidth if dtype is not None else 32) // 8
    return total


def _rewrite(site: Site, scheme: Scheme, context: Context, sweeper: _Sweeper) -> Drawn:
    node = site.node
    assert site.rule is not None
    context.names.free(node.name)
    for output in node.outputs:
        context.names.free(output.name)
    name = node.name or context.names.new(f"{node.op_type}_{node.outputs[0].name}")
    context.names.free(name)
    drawn = site.rule.rewrite(node, scheme, context, name)
    context.emitter.flush_before(node)
    sweeper.replace(node, drawn.outputs)
    return drawn


def _store_float16(site: Site, context: Context, sweeper: _Sweeper) -> Drawn:
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


class _Sweeper:
    """Takes replaced nodes out of the graph, and with them whatever nothing reads any more."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._dropped_inputs: list[str] = []

    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """`outputs` take the places of the node's; a None stands for one that nothing reads."""
        for old, new in zip(node.outputs, outputs, strict=False):
            if new is None:
                continue
            new.name, new.type, new.shape = old.name, old.type, old.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        inputs = [i for i in node.inputs if i is not None]
        graph = node.graph
        assert graph is not None
        graph.remove(node, safe=True)
        for value in inputs:
            self.unused(value)

    def unused(self, value: ir.Value) -> None:
        """Removes `value` and what made it, as far as nothing reads them."""
        stack = [value]
        while stack:
            v = stack.pop()
            if v.uses() or v.is_graph_output():
                continue
            node = v.producer()
            if node is None:
                self._drop_initializer(v)
            elif node.graph is not None and not any(
                o.uses() or o.is_graph_output() for o in node.outputs
            ):
                stack.extend(i for i in node.inputs if i is not None)
                node.graph.remove(node, safe=True)

    def notes(self) -> list[str]:
        """What was removed from the model's interface."""
        if not self._dropped_inputs:
            return []
        return [
            "these initializers were also graph inputs and are constant now: "
            + ", ".join(sorted(self._dropped_inputs))
        ]

    def _drop_initializer(self, value: ir.Value) -> None:
        graph = value.graph
        if graph is None or not value.is_initializer():
            return
        if value.is_graph_input():
            graph.inputs.remove(value)
            self._dropped_inputs.append(value.name or "")
        if value.name in graph.initializers:
            del graph.initializers[value.name]
