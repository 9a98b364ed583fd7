"""The layers of one model, and what any recipe makes of them: hundreds of recipes are asked for."""

from __future__ import annotations

from octavo.onnx.convert import make_context
from octavo.onnx.plan.options import Request, plain_request
from octavo.onnx.plan.prepare import Survey, decisions_on, needed_opset, survey
from octavo.onnx.plan.resolve import resolve
from octavo.onnx.read.load import Origin, load
from octavo.onnx.rule import Context
from octavo.onnx.write.store import TensorStore
from octavo.recipe import Decision, Recipe, Scheme


class Layers:
    """Reads the model once, and asks once what the target can hold of a layer and a scheme."""

    def __init__(self, origin: Origin, *, target: str, cpu: str, quant_format: str) -> None:
        self._origin = origin
        self._options = {"target": target, "cpu": cpu, "quant_format": quant_format}
        self._surveys: dict[int, tuple[Survey, Context]] = {}
        self._resolved: dict[tuple[int, int, Scheme], Decision] = {}

    def decisions(self, recipe: Recipe) -> list[Decision]:
        """What a conversion by `recipe` holds, layer by layer."""
        request = plain_request(recipe, **self._options)
        opset = needed_opset(request)
        found, context = self._survey(opset, request)
        return [
            decision if decision.scheme.is_float else self._held(opset, i, decision, context)
            for i, decision in enumerate(decisions_on(found, request))
        ]

    def _held(self, opset: int, index: int, decision: Decision, context: Context) -> Decision:
        key = (opset, index, decision.scheme)
        known = self._resolved.get(key)
        if known is None:
            site = self._surveys[opset][0].sites[index]
            known = self._resolved[key] = resolve(site, decision, context).decision
        return known

    def _survey(self, opset: int, request: Request) -> tuple[Survey, Context]:
        """By the opset that is needed: raising it may change nodes."""
        if opset not in self._surveys:
            source = load(self._origin)
            found = survey(source, opset, allow_quantized=False)
            context = make_context(
                source.model,
                TensorStore(None),
                found.constants,
                opset=found.opset,
                target=request.target,
                cpu=request.cpu,
                quant_format=request.quant_format,
            )
            self._surveys[opset] = found, context
        return self._surveys[opset]
