"""The least ONNX Runtime that runs a model, from what is in it."""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.ir import MS, WITHOUT_QUANTIZE

BASE = (1, 17)  # the oldest version that conversions are tested with

# First ONNX Runtime release that runs our files of an opset or a file format (IR) version, each
# tried: 1.17.3, then the last release of 1.18 to 1.25. IR version 14 is refused up to 1.31, the
# newest that there was.
OPSETS = {21: (1, 18), 22: (1, 21), 23: (1, 23), 24: (1, 24), 25: (1, 24), 26: (1, 25)}
IR_VERSIONS = {10: (1, 18), 11: (1, 23), 12: (1, 24), 13: (1, 24), 14: (1, 32)}
# MatMulNBits with 8 bits on the CPU: refused by 1.21.1, runs in 1.22.1.
EIGHT_BIT_BLOCKS = (1, 22)
# ConvInteger with int8 weights: "not implemented" in 1.23.2, runs in 1.24.1. uint8 always did.
SIGNED_FILTERS = (1, 24)
# QuantizeLinear of opset 23: not implemented in 1.23.2. What we write is `Emitter.quantize`.
QUANTIZE_OF_23 = (1, 24)


def least_onnxruntime(model: ir.Model) -> str:
    """Such as "1.17"."""
    needs = [BASE]
    opset = opset_of(model)
    needs += [v for first, v in OPSETS.items() if opset >= first]
    needs += [v for first, v in IR_VERSIONS.items() if model.ir_version >= first]
    for graph in graphs_of(model):
        needs += [least for node in graph if (least := _of_node(node, opset)) is not None]
    major, minor = max(needs)
    return f"{major}.{minor}"


def _of_node(node: ir.Node, opset: int) -> tuple[int, int] | None:
    if node.op_type == "MatMulNBits":
        return EIGHT_BIT_BLOCKS
    if node.op_type == "ConvInteger" and _is_signed(node.inputs[1]):
        return SIGNED_FILTERS
    if node.op_type == "QuantizeLinear" and node.domain != MS and opset >= WITHOUT_QUANTIZE:
        return QUANTIZE_OF_23
    return None


def _is_signed(filters: ir.Value | None) -> bool:
    return filters is not None and filters.dtype is ir.DataType.INT8
