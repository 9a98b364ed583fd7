"""octavo::conv as ai.octavo.Conv.

conv(x, packed, scale, bias, ...)  ->  Conv(x, packed, scale, bias)
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from octavo.core.kernels import checksum
from octavo.graph.native.conv import FilterValues, conv
from octavo.torch.exports.conv import rank_of
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.native.constants import bias_of
from octavo.torch.exports.program import call_of
from octavo.torch.memory import array


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """The images [batch, channels, ...], or one without a batch."""
    call, e = call_of(node), d.emitter
    layer, shape = layer_of(call["packed"]), tuple(call["shape"])
    out = node.outputs[0].name or layer
    x = d.float32(call["x"], node)
    single = rank_of(call["x"]) == len(shape) - 1
    if single:
        x = e.op("Unsqueeze", [x, e.vector([0])], out=f"{out}_batch")
    packed, scale = d.tensor(call["packed"]), d.tensor(call["scale"])

    def make() -> FilterValues:
        return FilterValues(
            d.constant(packed.view(torch.int8), f"{layer}.weight_quantized", node.graph),
            d.constant(scale, f"{layer}.weight_scale", node.graph),
            shape,
            call["groups"],
            checksum(array(packed)),
        )

    y = conv(
        e,
        x,
        d.once(("filters", node.graph), [packed, scale], make),
        bias_of(d, call["bias"], shape[0], layer, node),
        {"strides": call["stride"], "pads": call["pads"], "dilations": call["dilation"]},
        name=node.name or layer,
        out=f"{out}_image",
    )
    if single:
        y = e.op("Squeeze", [y, e.vector([0])], out=f"{out}_single")
    return [d.in_kind(y, call["x"], out)]
