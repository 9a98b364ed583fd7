"""From a prepared model to its quantized file."""

from __future__ import annotations

import math
from dataclasses import replace

import onnx_ir as ir

import octavo
from octavo.core.attention_type import METADATA, AttentionType
from octavo.core.progress import Progress
from octavo.errors import NothingQuantizedError
from octavo.graph.analysis.requirements import least_onnxruntime
from octavo.graph.analysis.walk import opset_of
from octavo.ir import DOMAIN, OPERATORS
from octavo.onnx.convert import Converted, convert
from octavo.onnx.input_statistics import InputStatistics
from octavo.onnx.native_only import (
    advice_of,
    convolutions_note,
    native_only_layers,
    note_of,
)
from octavo.onnx.plan.options import Request
from octavo.onnx.plan.prepare import Prepared
from octavo.onnx.read.load import Source
from octavo.onnx.read.stored_report import LAYERS, MAX_ERROR
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.write.save import Place, needs_data_file, save
from octavo.results.names import counted_reasons
from octavo.results.report import Report, Verification
from octavo.results.stored import outcomes_to_json


def produce(
    source: Source,
    prepared: Prepared,
    request: Request,
    place: Place,
    *,
    external: bool,
    allow_nothing: bool,
    progress: Progress,
    statistics: InputStatistics | None = None,
) -> Converted:
    """Convert and write to `place`. Raises OSError where it cannot be written."""
    beyond = native_only_layers(source.model, prepared, request)
    large = needs_data_file(source, _expected_bytes(source, prepared))
    tensors = TensorStore(place.data if external or large else None)
    try:
        converted = convert(
            source.model,
            prepared.sites,
            prepared.decisions,
            tensors,
            prepared.constants,
            request.form.at(prepared.opset),
            progress,
            request.recipe.attention,
            statistics,
        )
        if not any(o.quantized for o in converted.outcomes) and not allow_nothing:
            raise NothingQuantizedError(_nothing(source, converted, advice_of(beyond, request)))
        progress("writing", 0, 1)
        save(source.model, place, tensors, _metadata(request, source.model, converted))
    finally:
        tensors.close()
    said = (
        note_of(beyond, request),
        convolutions_note(converted.outcomes, request, source.bytes),
    )
    notes = [note for note in said if note]
    if place.data.exists() and not external:
        notes.append(f"the weights are in {place.data.name}: the model is too large for one file")
    return replace(converted, notes=(*converted.notes, *notes))


def report_of(
    source: Source,
    request: Request,
    prepared: Prepared,
    converted: Converted,
    *,
    output: str,
    size: int,
    verification: Verification,
    seconds: float,
) -> Report:
    """Report what became of every layer; `size` counts all files of the result."""
    return Report(
        source=source.label,
        output=output,
        recipe=request.recipe.to_dict(),
        target=request.form.target.value,
        cpu=request.form.cpu.value,
        quant_format=request.form.quant_format.value,
        layers=converted.outcomes,
        model_bytes_before=source.bytes,
        model_bytes_after=size,
        opset=opset_of(source.model),
        min_onnxruntime=least_onnxruntime(source.model),
        verification=verification,
        seconds=seconds,
        notes=(*prepared.notes, *converted.notes),
    )


def files_size(place: Place) -> int:
    """Bytes of what was written."""
    return sum(p.stat().st_size for p in (place.model, place.data) if p.exists())


def _metadata(request: Request, model: ir.Model, converted: Converted) -> dict[str, str]:
    needed = {"octavo.operators": OPERATORS} if DOMAIN in model.opset_imports else {}
    attention = request.recipe.attention
    if attention is not AttentionType.FLOAT32:
        needed[METADATA] = attention.value
    return needed | {
        "octavo.version": octavo.__version__,
        "octavo.recipe": request.recipe.name,
        **{f"octavo.{key}": word for key, word in request.form.words.items()},
        "octavo.min_onnxruntime": least_onnxruntime(model),
        MAX_ERROR: str(request.recipe.max_error),
        LAYERS: outcomes_to_json(converted.outcomes),
    }


def _expected_bytes(source: Source, prepared: Prepared) -> int:
    """Return the size of the result, as far as it is known before weights are quantized."""
    total, constants = source.bytes, prepared.constants
    seen = set()
    for site, decision in zip(prepared.sites, prepared.decisions, strict=True):
        scheme = decision.scheme.weight
        if scheme is None:
            continue
        for weight in site.weights:
            key, dtype = constants.root(weight).key, constants.dtype(weight)
            if key not in seen and dtype is not None:
                seen.add(key)
                bits = dtype.bitwidth - 8 * scheme.qtype.bytes
                total -= math.prod(constants.shape(weight)) * max(0, bits) // 8
    return total


def _nothing(source: Source, converted: Converted, advice: str) -> str:
    left = converted.outcomes
    reasons = counted_reasons([o.layer.op for o in left], [o.reason for o in left])
    found = "no layer would be quantized" if left else "it has no layer that holds weights"
    change = "Or change" if advice else "Change"
    return (
        f"{source.label}: {found}. {advice}{change} the recipe or the selection, or pass "
        f"allow_nothing=True (--allow-nothing) to write the model all the same{reasons}"
    )
