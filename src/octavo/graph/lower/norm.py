"""Norm with stock operators, which ONNX Runtime makes one of when it opens a file.

    layer   LayerNormalization, before opset 17:  x ─ x - mean ─ / sqrt(mean of squares + eps)
    rms     x / sqrt(mean of squares + eps)

and `* weight + bias` behind those that are written out.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir.norm import LAYER_NORM, Norm

FIRST_WITH_OPERATOR = 17  # opset of LayerNormalization


def lower(norm: Norm, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower a Norm node; return the normalized rows."""
    e, out, x = c.emitter, node.outputs[0].name or "norm", norm.x
    if norm.kind == LAYER_NORM and c.opset >= FIRST_WITH_OPERATOR:
        inputs = [x, norm.weight, *([] if norm.bias is None else [norm.bias])]
        operator = "LayerNormalization"
        return [e.op(operator, inputs, out=out, name=node.name, axis=-1, epsilon=norm.epsilon)]
    if norm.kind == LAYER_NORM:
        mean = e.reduce_last("ReduceMean", x, f"{out}_mean")
        x = e.op("Sub", [x, mean], out=f"{out}_centred")
    squares = e.op("Pow", [x, e.scalar(2.0, np.float32)], out=f"{out}_squares")
    mean = e.reduce_last("ReduceMean", squares, f"{out}_variance")
    sum_ = e.op("Add", [mean, e.scalar(norm.epsilon, np.float32)], out=f"{out}_above_zero")
    root = e.op("Sqrt", [sum_], out=f"{out}_size")
    y = e.op("Div", [x, root], out=f"{out}_normalized")
    y = e.op("Mul", [y, norm.weight], out=f"{out}_weighted")
    if norm.bias is not None:
        y = e.op("Add", [y, norm.bias], out=f"{out}_shifted")
    return [y]
