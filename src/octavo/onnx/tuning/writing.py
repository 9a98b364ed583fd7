"""Writes quantized forms of one model, without comparing them with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from octavo.onnx.convert import Converted, make_context
from octavo.onnx.plan.options import Request, plain_request
from octavo.onnx.plan.prepare import Prepared, prepare
from octavo.onnx.plan.resolve import resolve_all
from octavo.onnx.read.load import Origin, Source, load
from octavo.onnx.tuning.switches import add_switches
from octavo.onnx.write.produce import files_size, produce, report_of
from octavo.onnx.write.save import Place, os_errors_explained
from octavo.onnx.write.store import TensorStore
from octavo.recipe import FLOAT, Decision, Recipe, Report, Verification

Check = Callable[[Source, Converted], Verification]


class Writer:
    """`target`, `cpu` and `quant_format` are those of `quantize_dynamic`."""

    def __init__(self, origin: Origin, *, target: str, cpu: str, quant_format: str) -> None:
        self._origin = origin
        self._options = {"target": target, "cpu": cpu, "quant_format": quant_format}

    def write(self, recipe: Recipe, place: Place, check: Check | None = None) -> Report:
        """The model quantized by `recipe`, at `place`; `check` sees it before the report."""
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
        """As `write`, with all layers but these float."""
        source, request, prepared = self._prepared(recipe)
        decisions = [
            d if d.layer.name in layers else Decision(d.layer, FLOAT) for d in prepared.decisions
        ]
        _produce(source, replace(prepared, decisions=decisions), request, place)

    def write_switched(self, recipe: Recipe, place: Place) -> dict[str, str]:
        """The model with a switch behind each layer that `recipe` quantizes.

        Returns the inputs that are the switches, by layer.
        """
        source, request, prepared = self._prepared(recipe)
        context = make_context(
            source.model,
            TensorStore(None),
            prepared.constants,
            opset=prepared.opset,
            target=request.target,
            cpu=request.cpu,
            quant_format=request.quant_format,
        )
        resolved = resolve_all(prepared.sites, prepared.decisions, context)
        held = [layer.site for layer in resolved if not layer.decision.scheme.is_float]
        switches = add_switches(source.model, held)
        _produce(source, prepared, request, place)
        return switches

    def _prepared(self, recipe: Recipe) -> tuple[Source, Request, Prepared]:
        source = load(self._origin)
        request = plain_request(recipe, **self._options)
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
