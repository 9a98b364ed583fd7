"""Layers that stay in the quantized form that a file has them in, each with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of
from octavo.ir import DOMAIN
from octavo.onnx.constants import Constants
from octavo.onnx.from_quantized import attention, blocks
from octavo.onnx.operators.reader import op_name
from octavo.onnx.read.normalize import QUANTIZED_OPS
from octavo.recipe import Kind, Layer
from octavo.results.report import LayerOutcome

ACTIVATIONS = frozenset(("DynamicQuantizeLinear", "QuantizeLinear"))
AS_IT_WAS = "as it was"
"""The scheme of such layers."""
MATRIX = 2  # axes of what counts as a weight
STATIC = (
    "its activations have ranges from a calibration, and integers go in and come out: quantize the "
    "float model"
)
OTHER = "target native has no operator for it in this form"


def left_quantized(model: ir.Model, constants: Constants) -> list[LayerOutcome]:
    """List every node of `model` that still computes with integers, or makes floats of them."""
    return [
        _outcome(node, constants)
        for graph in graphs_of(model)
        for node in graph
        if node.op_type in QUANTIZED_OPS - ACTIVATIONS and node.domain != DOMAIN
    ]


def _outcome(node: ir.Node, constants: Constants) -> LayerOutcome:
    weights = list(_weights(node, constants))
    size = sum(math.prod(shape) * dtype.bitwidth for _, shape, dtype in weights) // 8
    layer = Layer(
        name=node.name or f"{node.op_type}:{node.outputs[0].name}",
        kind=Kind.OTHER,
        op=op_name(node),
        weights=tuple((name, shape) for name, shape, _ in weights),
        bytes=size,
        macs_per_row=None,
        dtype=weights[0][2].name.lower() if weights else "float32",
    )
    reason = f"stays as it was: {_reason(node, constants)}"
    return LayerOutcome(layer, False, AS_IT_WAS, reason, size, size)


def _weights(
    node: ir.Node, constants: Constants
) -> Iterator[tuple[str, tuple[int, ...], ir.DataType]]:
    for value in node.inputs:
        if value is None or not constants.is_constant(value):
            continue
        dtype, shape = constants.dtype(value), constants.shape(value)
        if dtype is not None and dtype.is_integer() and len(shape) >= MATRIX:
            yield value.name or "", shape, dtype


def _reason(node: ir.Node, constants: Constants) -> str:
    if node.op_type == "QAttention":
        return attention.why_left(node) or OTHER
    if node.op_type in ("MatMulNBits", "GatherBlockQuantized"):
        return blocks.why_left(node, constants) or OTHER
    if node.op_type.startswith("QLinear") or node.op_type in ("QGemm", "QEmbedLayerNormalization"):
        return STATIC
    return OTHER
