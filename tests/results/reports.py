"""Reports that were made up, for the tests of what is shown of them."""

from __future__ import annotations

from dataclasses import replace

from octavo.recipe import Kind, Layer
from octavo.results.report import LayerOutcome, Report, Verification


def linear(name: str, **changes: object) -> Layer:
    layer = Layer(name, Kind.LINEAR, "MatMul", ((name + ".w", (384, 1536)),), 2_359_296, 589_824)
    return replace(layer, **changes)  # type: ignore[arg-type]


def report(*layers: LayerOutcome, **changes: object) -> Report:
    made = Report(
        source="model.onnx",
        output="out/model.int8.onnx",
        recipe={"name": "int8"},
        target="portable",
        cpu="vnni",
        quant_format="qoperator",
        layers=layers,
        model_bytes_before=90_400_000,
        model_bytes_after=22_900_000,
        opset=17,
        min_onnxruntime="1.17",
        verification=Verification("passed", "made up", 3, 0.00213, 0.0021, 0.1),
        seconds=1.234,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
