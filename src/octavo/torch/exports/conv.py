"""octavo::conv: the nodes of `octavo.graph.conv`, per image.

conv(x, packed, ...)  ->  quantize_images(x) ─ ConvInteger(uint8 filters) ─ Mul(scales) ─ Add(bias)

Filters are uint8, the integers moved up by 128: ONNX Runtime's ConvInteger is slow with int8 ones.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.core.convolution import unpack_filters
from octavo.graph.conv import conv_integer, quantize_images
from octavo.graph.integers import moved_up
from octavo.graph.linear import QuantizedWeightValues
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.linear import MOST_INPUTS
from octavo.torch.exports.program import call_of
from octavo.torch.memory import array


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """The images [batch, channels, ...], or one without a batch."""
    call, e = call_of(node), d.emitter
    layer, shape = layer_of(call["packed"]), call["shape"]
    out, name = node.outputs[0].name or layer, node.name or layer
    rank, inputs = len(shape), prod(shape[1:])
    x = d.float32(call["x"], node)
    single = rank_of(call["x"]) == rank - 1
    if single:
        x = e.op("Unsqueeze", [x, e.vector([0])], out=f"{out}_batch")
    attributes = {
        "strides": list(call["stride"]),
        "pads": list(call["pads"]),
        "dilations": list(call["dilation"]),
        "group": call["groups"],
    }
    stored = [d.tensor(call["packed"]), d.tensor(call["scale"])]
    if inputs > MOST_INPUTS:
        d.note(layer, f"computed in float: the sums of {inputs} inputs would overflow int32")
        w = d.once("float conv", stored, lambda: _filters(d, call, layer, flat=True))
        filters = d.dequantized(w, None, 0, f"{out}_filters")
        y = e.op("Conv", [x, filters, call["bias"]], out=f"{out}_image", name=name, **attributes)
    else:
        w = d.once("conv", stored, lambda: _filters(d, call, layer, flat=False))
        images = quantize_images(e, x, rank, d.activations.zero_point(x))
        bias = call["bias"]
        if bias is not None:
            column = e.vector([1, -1] + [1] * (rank - 2))
            bias = e.op("Reshape", [bias, column], out=f"{out}_bias")
        y = conv_integer(e, images, w, bias, attributes, name=name, out=f"{out}_image")
    if single:
        y = e.op("Squeeze", [y, e.vector([0])], out=f"{out}_single")
    return [d.in_kind(y, call["x"], out)]


def rank_of(x: ir.Value) -> int:
    """Its number of dimensions."""
    assert x.shape is not None  # PyTorch's exporter states the shape of every tensor
    return len(x.shape)


def _filters(d: Drawing, call: dict[str, Any], layer: str, *, flat: bool) -> QuantizedWeightValues:
    """The filters as they are; scales [channels] if `flat`, else beside the output."""
    shape = tuple(call["shape"])
    q = unpack_filters(array(d.tensor(call["packed"])), shape, call["groups"])
    scale = array(d.tensor(call["scale"]))
    if flat:
        return d.integers(q, scale, None, f"{layer}.weight")
    return QuantizedWeightValues(
        d.constant(moved_up(q), f"{layer}.weight_quantized"),
        d.constant(scale.reshape(-1, *[1] * (len(shape) - 2)), f"{layer}.weight_scale"),
        d.emitter.scalar(128, np.uint8),
    )
