"""What target native would make of a file that another quantizer wrote."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from octavo.errors import listed
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.onnx.constants import Constants
from octavo.onnx.from_quantized import restore
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.plan.kept_layers import decisions_to_keep
from octavo.onnx.plan.prepare import survey_normalized
from octavo.onnx.read import normalize
from octavo.onnx.read.load import Origin, load
from octavo.onnx.read.stored_report import quantized_already

DYNAMIC = frozenset(("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"))


def convertible(origin: Origin) -> str:
    """Say what octavo convert-target would take of the model, read afresh. Raises ModelError.

    `octavo convert-target --to native takes 24 MatMul, 2 Gather, over the same integers`.
    """
    source = load(origin)
    model = source.model
    notes = normalize.normalize(model, source.label, normalize.FIRST_WITH_QUANTIZE)
    restoring = RestoringContext(model, Constants(opset_of(model)))
    restore(restoring)
    found = survey_normalized(model, notes)
    decisions = decisions_to_keep(found.sites, found.constants, restoring.restored, ours=False)
    kept = Counter(d.layer.op for d in decisions if not d.scheme.is_float)
    if not kept:
        return "octavo convert-target --to native finds no layer in it"
    layers = listed(f"{n:,} {op}" for op, n in kept.most_common())
    return f"octavo convert-target --to native takes {layers}, over the same integers"


def quantized_by_others(origin: Origin) -> str:
    """Say what a file of ONNX Runtime's quantizers, or of tools that use them, is and may become.

    Returns "" for a float model and for a file of Octavo. Raises ModelError.
    """
    model = load(origin).model
    if any(key.startswith("octavo.") for key in model.metadata_props):
        return ""
    held = quantized_already(model)
    return f"{_kind(model)}; {held}; {convertible(origin)}" if held else ""


def _kind(model: ir.Model) -> str:
    ops = {node.op_type for graph in graphs_of(model) for node in graph}
    if ops & DYNAMIC:
        return "quantized dynamically, as ONNX Runtime's quantize_dynamic does"
    if "QuantizeLinear" in ops or any(op.startswith("QLinear") for op in ops):
        return "quantized with ranges of a calibration, as ONNX Runtime's quantize_static does"
    return "quantized in its weights alone"
