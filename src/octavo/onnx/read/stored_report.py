"""What a quantized file says of itself, in its metadata and by its operators."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx_ir as ir

from octavo.core.attention_type import METADATA
from octavo.errors import listed
from octavo.graph.analysis.requirements import least_onnxruntime
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.ir import DOMAIN
from octavo.onnx.read.load import load
from octavo.onnx.read.normalize import QUANTIZED_OPS
from octavo.results.report import Report, Verification
from octavo.results.stored import outcomes_from_json

MAX_ERROR = "octavo.max_error"
"""The key of a file's metadata under which the recipe's bound stands."""
LAYERS = "octavo.layers"
"""The key of a file's metadata under which it says what became of each layer, and why."""


def stored_report(quantized: Path, floating: Path) -> Report | None:
    """Return the report stored in the file that Octavo made of `floating`; None if it has none.

    Of the recipe only name and bound are stored, of the verification and the time it took nothing.
    Raises ModelError.
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
        recipe={
            **{"name": said.get("octavo.recipe", ""), "max_error": bound},
            **({"attention": said[METADATA]} if METADATA in said else {}),
        },
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


def quantized_already(model: ir.Model) -> str:
    """Say how much of `model` is quantized already, and by whom; "" for a float model.

    `38 of 51 layers, by Octavo 0.1.0 (recipe int8, target portable)`, or what operators show for
    another's file.
    """
    operators = Counter(
        node.op_type
        for graph in graphs_of(model)
        for node in graph
        if node.op_type in QUANTIZED_OPS or node.domain == DOMAIN
    )
    if not operators:
        return ""
    said = model.metadata_props
    try:
        outcomes = outcomes_from_json(said[LAYERS])
    except (KeyError, ValueError):  # another's file, or an older one
        return "it holds " + listed(f"{n:,} {op}" for op, n in operators.most_common())
    done = sum(outcome.quantized for outcome in outcomes)
    settings = [
        f"{key} {said[name]}" for key in ("recipe", "target") if (name := f"octavo.{key}") in said
    ]
    by = f"by Octavo {said.get('octavo.version', '')}".rstrip()
    return f"{done:,} of {len(outcomes):,} layers, {by} ({', '.join(settings)})"
