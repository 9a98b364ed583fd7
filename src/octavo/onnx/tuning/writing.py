"""One model under any recipe: what becomes of its layers, and quantized forms of it as files.

Hundreds of recipes are asked for. Nothing that is written is compared with the float model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import onnx_ir as ir

from octavo.core.form import Form
from octavo.graph.emit.emitter import Names
from octavo.onnx.convert import Converted, make_context
from octavo.onnx.operators.reader import ReadContext
from octavo.onnx.plan.inventory import Site
from octavo.onnx.plan.options import Request, parse_request
from octavo.onnx.plan.prepare import Prepared, Survey, decisions_on, needed_opset, prepare, survey
from octavo.onnx.plan.resolve import resolve, resolve_all
from octavo.onnx.produce import files_size, produce, report_of
from octavo.onnx.read.load import Origin, Source, load
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.write.save import Place, os_errors_explained
from octavo.recipe import FLOAT, Decision, Recipe, Scheme
from octavo.results.report import Report, Verification

Check = Callable[[Source, Converted], Verification]


class LayerDecisions:
    """Reads the model once, and asks once what the target can hold of a layer and a scheme."""

    def __init__(self, origin: Origin, form: Form) -> None:
        self._origin, self._form = origin, form
        self._surveys: dict[int, tuple[Survey, ReadContext]] = {}
        self._resolved: dict[tuple[int, int, Scheme], Decision] = {}

    def decisions(self, recipe: Recipe) -> list[Decision]:
        """Return what a conversion by `recipe` holds, layer by layer."""
        request = parse_request(recipe, self._form)
        opset = needed_opset(request)
        found, context = self._survey(opset, request)
        return [
            decision if decision.scheme.is_float else self._held(opset, i, decision, context)
            for i, decision in enumerate(decisions_on(found, request))
        ]

    def _held(self, opset: int, index: int, decision: Decision, context: ReadContext) -> Decision:
        key = (opset, index, decision.scheme)
        known = self._resolved.get(key)
        if known is None:
            site = self._surveys[opset][0].sites[index]
            known = self._resolved[key] = resolve(site, decision, context).decision
        return known

    def _survey(self, opset: int, request: Request) -> tuple[Survey, ReadContext]:
        """Return the model's survey at `opset`, the one needed: raising it may change nodes."""
        if opset not in self._surveys:
            source = load(self._origin)
            found = survey(source, opset, allow_quantized=False)
            form = request.form.at(found.opset)
            context = make_context(source.model, TensorStore(None), found.constants, form)
            self._surveys[opset] = found, context
        return self._surveys[opset]


class Writer:
    """Of one float model, in one form."""

    def __init__(self, origin: Origin, form: Form) -> None:
        self._origin = origin
        self._form = form

    def write(self, recipe: Recipe, place: Place, check: Check | None = None) -> Report:
        """Write the model quantized by `recipe` to `place`; `check` sees it before the report."""
        started = time.perf_counter()
        source, request, prepared = self._prepared(recipe)
        converted = _produce(source, prepared, request, place)
        verification = check(source, converted) if check else Verification("skipped")
        return report_of(
            source,
            request,
            prepared,
            converted,
            output=str(place.out),
            size=files_size(place),
            verification=verification,
            seconds=time.perf_counter() - started,
        )

    def write_part(self, recipe: Recipe, layers: Collection[str], place: Place) -> None:
        """Write the model as `write` does, with all layers but `layers` float."""
        source, request, prepared = self._prepared(recipe)
        decisions = [
            d if d.layer.name in layers else Decision(d.layer, FLOAT) for d in prepared.decisions
        ]
        _produce(source, replace(prepared, decisions=decisions), request, place)

    def write_switched(self, recipe: Recipe, place: Place) -> dict[str, str]:
        """Write the model with a switch behind each layer that `recipe` quantizes.

        Returns the inputs that are the switches, by layer.
        """
        source, request, prepared = self._prepared(recipe)
        context = make_context(
            source.model,
            TensorStore(None),
            prepared.constants,
            request.form.at(prepared.opset),
        )
        resolved = resolve_all(prepared.sites, prepared.decisions, context)
        held = [layer.site for layer in resolved if not layer.decision.scheme.is_float]
        switches = add_switches(source.model, held)
        _produce(source, prepared, request, place)
        return switches

    def _prepared(self, recipe: Recipe) -> tuple[Source, Request, Prepared]:
        source = load(self._origin)
        request = parse_request(recipe, self._form)
        return source, request, prepare(source, request, allow_quantized=False)


def _produce(source: Source, prepared: Prepared, request: Request, place: Place) -> Converted:
    with os_errors_explained(source, place):
        return produce(
            source,
            prepared,
            request,
            place,
            external=False,
            allow_nothing=True,
            progress=lambda stage, done, total: None,
        )


def add_switches(model: ir.Model, sites: Iterable[Site]) -> dict[str, str]:
    """Add a switch to `model` for the layer of each site; return the switches' names by layer.

    True takes the layer, to be quantized, False its float twin.
    """
    names = Names(model)
    switches = {}
    for site in sites:
        switch = ir.Value(
            name=names.values.new("octavo_switch"),
            type=ir.TensorType(ir.DataType.BOOL),
            shape=ir.Shape([]),
        )
        model.graph.inputs.append(switch)
        _add_twin(site.node, switch, names)
        assert switch.name is not None
        switches[site.layer.name] = switch.name
    return switches


def _add_twin(node: ir.Node, switch: ir.Value, names: Names) -> None:
    twin = ir.Node(
        node.domain,
        node.op_type,
        list(node.inputs),
        list(node.attributes.values()),
        overload=node.overload,
        num_outputs=len(node.outputs),
        version=node.version,
        name=names.nodes.new(f"{node.name or node.op_type}_float"),
    )
    chosen = []
    for quantized, plain in zip(node.outputs, twin.outputs, strict=True):
        if not quantized.name or not (quantized.uses() or quantized.is_graph_output()):
            plain.name = ""  # nothing reads it
            continue
        result = ir.Value(name=quantized.name, type=quantized.type, shape=quantized.shape)
        quantized.replace_all_uses_with(result, replace_graph_outputs=True)
        plain.name = names.values.new(f"{result.name}_float")
        plain.type, plain.shape = quantized.type, quantized.shape
        quantized.name = names.values.new(f"{result.name}_quantized")
        chosen.append(
            ir.node(
                "Where",
                [switch, quantized, plain],
                outputs=[result],
                name=names.nodes.new(f"{result.name}_switch"),
            )
        )
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    graph.insert_after(node, [twin, *chosen])
