"""What of a model is quantized already, in words."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from octavo.errors import listed
from octavo.graph.native import DOMAIN
from octavo.graph.walk import graphs_of
from octavo.onnx.normalize import QUANTIZED_OPS
from octavo.onnx.produce import LAYERS
from octavo.results.stored import outcomes_from_json


def quantized_already(model: ir.Model) -> str:
    """`38 of 51 layers, by Octavo 0.1.0 (recipe int8, target portable)`, what operators show for
    another's file, "" for a float model.
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
