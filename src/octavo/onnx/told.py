"""What a quantized file says of itself."""

from __future__ import annotations

from pathlib import Path

from octavo.graph.requirements import least_onnxruntime
from octavo.graph.walk import opset_of
from octavo.onnx.load import load
from octavo.onnx.produce import LAYERS, MAX_ERROR
from octavo.recipe import Report, Verification
from octavo.results.stored import outcomes_from_json


def report_in(quantized: Path, floating: Path) -> Report | None:
    """The report of the file that Octavo made of `floating`; None where the file has none.

    What is not in a file is not in the report: of the recipe there are name and bound, of the
    verification and the time it took nothing. Raises ModelError.
    """
    source = load(quantized)
    said = source.model.metadata_props
    try:
        layers, bound = outcomes_from_json(said[LAYERS]), float(said[MAX_ERROR])
    except (KeyError, ValueError):  # another's file, or an older one
        return None
    return Report(
        source=str(floating),
        output=str(quantized),
        recipe={"name": said.get("octavo.recipe", ""), "max_error": bound},
        target=said.get("octavo.target", "portable"),
        cpu=said.get("octavo.cpu", ""),
        quant_format=said.get("octavo.quant_format", ""),
        layers=layers,
        model_bytes_before=load(floating).bytes,
        model_bytes_after=source.bytes,
        opset=opset_of(source.model),
        min_onnxruntime=said.get("octavo.min_onnxruntime", least_onnxruntime(source.model)),
        verification=Verification("skipped"),
        seconds=0.0,
    )
