"""The least ONNX Runtime that runs a model, from what is in it."""

from __future__ import annotations

import math

import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.ir import MS, WITHOUT_QUANTIZE

BASE = (1, 17)  # the oldest version that conversions are tested with

# First ONNX Runtime release that runs our files of an opset or a file format (IR) version, each
# tried: 1.17.3, then the last release of 1.18 to 1.25, then 1.32, the newest that there was. IR
# version 14 is refused up to 1.31.
OPSETS = {21: (1, 18), 22: (1, 21), 23: (1, 23), 24: (1, 24), 25: (1, 24), 26: (1, 25), 27: (1, 32)}
IR_VERSIONS = {10: (1, 18), 11: (1, 23), 12: (1, 24), 13: (1, 24), 14: (1, 32)}
# MatMulNBits with 8 bits on the CPU: refused by 1.21.1, runs in 1.22.1.
EIGHT_BIT_BLOCKS = (1, 22)
# GatherBlockQuantized over uint8: unknown to 1.22.1, runs in 1.23.2. Packed zero points of an odd
# number of blocks are read wrongly up to 1.25.1 and rightly in 1.32.0; none between was tried.
TABLES_IN_BLOCKS = (1, 23)
ODD_ZERO_POINTS = (1, 32)
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
        return EIGHT_BIT_BLOCKS if _bits(node) == 8 else None
    if node.op_type == "GatherBlockQuantized":
        return ODD_ZERO_POINTS if _has_odd_zero_points(node) else TABLES_IN_BLOCKS
    if node.op_type == "ConvInteger" and _is_signed(node.inputs[1]):
        return SIGNED_FILTERS
    if node.op_type == "QuantizeLinear" and node.domain != MS and opset >= WITHOUT_QUANTIZE:
        return QUANTIZE_OF_23
    return None


def _bits(node: ir.Node) -> int:
    given = node.attributes.get("bits")
    return 4 if given is None else given.as_int()


def _has_odd_zero_points(node: ir.Node) -> bool:
    """Tell whether rows of packed zero points end within a byte, or may."""
    if len(node.inputs) < 4 or node.inputs[3] is None or _bits(node) == 8:
        return False
    scales, pairs = (_stored_size(node.inputs[i]) for i in (2, 3))
    return scales is None or pairs is None or scales != 2 * pairs


def _stored_size(value: ir.Value | None) -> int | None:
    """Elements of a constant, which may lie behind a Reshape."""
    made = None if value is None else value.producer()
    held = value if made is None or made.op_type != "Reshape" else made.inputs[0]
    shape = None if held is None else held.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return math.prod(shape.numpy())


def _is_signed(filters: ir.Value | None) -> bool:
    return filters is not None and filters.dtype is ir.DataType.INT8
