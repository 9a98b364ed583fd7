"""The least ONNX Runtime that runs a model, from what is in it."""

from __future__ import annotations

import onnx_ir as ir

from octavo.onnx.normalize import opset_of

BASE = (1, 17)  # the oldest version that conversions are tested with

# First ONNX Runtime release that supports an opset or a file format (IR) version.
OPSETS = {21: (1, 18), 22: (1, 20), 23: (1, 23), 24: (1, 24), 25: (1, 25), 26: (1, 27)}
IR_VERSIONS = {10: (1, 18), 11: (1, 22), 12: (1, 23), 13: (1, 24), 14: (1, 27)}
# MatMulNBits with 8 bits on the CPU.
EIGHT_BIT_BLOCKS = (1, 22)


def least_onnxruntime(model: ir.Model) -> str:
    """Such as "1.17"."""
    needs = [BASE]
    opset = opset_of(model)
    needs += [v for first, v in OPSETS.items() if opset >= first]
    needs += [v for first, v in IR_VERSIONS.items() if model.ir_version >= first]
    for graph in model.graphs():
        if any(node.op_type == "MatMulNBits" for node in graph):
            needs.append(EIGHT_BIT_BLOCKS)
    major, minor = max(needs)
    return f"{major}.{minor}"
