"""Conv with stock operators.

Conv(x, W, B)  ->  quantize_images(x) ─ ConvInteger(uint8 filters) ─ Mul(scales) ─ Add(B)
                   and MaxPool behind the activation, where the node has pools

Filters are uint8, moved up by 128: ONNX Runtime's ConvInteger is slow with int8 ones.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from octavo.core.stored_integers import moved_up
from octavo.graph.context import Context
from octavo.graph.lower.activation_nodes import activate
from octavo.graph.lower.linear import FIRST_WITH_AXIS, INT32_INPUTS
from octavo.graph.lower.products import conv_integer, dequantize
from octavo.ir.conv import Conv
from octavo.ir.operator import LAYER
from octavo.ir.weight import QuantizedWeightValues, Weight


def lower(layer: Conv, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower a Conv node; return its images, float32 [batch, M, ...]."""
    e, out, w = c.emitter, node.outputs[0].name or "images", layer.weight
    name, rank, inputs = node.name or out, len(w.shape), prod(w.shape[1:])
    attributes = {**layer.window, "group": layer.group, "kernel_shape": list(w.shape[2:])}
    bias = c.array(layer.bias)
    biased = layer.bias is not None and bias is not None and bool(np.any(bias))
    if w.matrix is None and inputs > INT32_INPUTS:
        c.note(
            node.meta.get(LAYER, name),
            f"computed in float: the sums of {inputs} inputs would overflow int32",
        )
        operands = [layer.x, _in_float(w, c), *([layer.bias] if biased else [])]
        y = e.op("Conv", operands, out=f"{out}_image", name=name, **attributes)
    else:
        images = c.activations.per_image(layer.x, rank, node)
        column = None
        if biased:
            assert bias is not None and layer.bias is not None
            wide, stem = bias.reshape(1, -1, *[1] * (rank - 2)), layer.bias.name or f"{name}_bias"
            column = c.once(("column", layer.bias), lambda: c.hold(np.array(wide), stem))
        y = conv_integer(
            e, images, filters(w, c), column, attributes, name=name, out=f"{out}_image"
        )
    y = activate(e, y, layer.activation, out=f"{out}_{layer.activation}")
    if layer.pool:
        sizes = list(layer.pool)
        y = e.op("MaxPool", [y], out=f"{out}_pool", kernel_shape=sizes, strides=sizes)
    return [y]


def filters(w: Weight, c: Context) -> QuantizedWeightValues:
    """uint8 filters; scales [M, 1, ...] beside the output [batch, M, ...]."""
    if w.matrix is not None:
        return w.matrix()

    def make() -> QuantizedWeightValues:
        found = w.integers()
        column = found.scale.reshape(-1, *[1] * (len(w.shape) - 2))
        q, scale = moved_up(found.q), np.array(column)
        zero = c.emitter.scalar(128, np.uint8)
        held = c.hold(q, w.part_name("quantized")), c.hold(scale, w.part_name("scale"))
        return QuantizedWeightValues(*held, zero)

    return c.once(("filters", w.key), make)


def _in_float(w: Weight, c: Context) -> ir.Value:
    """Build the float32 filters of `w`."""
    if c.opset >= FIRST_WITH_AXIS:
        held = c.once(("integers", w.key), lambda: c.hold_integers(w, w.integers(), unsigned=False))
        return dequantize(c.emitter, held, out=f"{w.name}_float", axis=0)

    def make() -> ir.Value:
        found = w.integers()
        wide = found.q * found.scale.reshape(-1, *[1] * (len(w.shape) - 1))
        return c.hold(wide, f"{w.name}_float")

    return c.once(("float", w.key), make)
