"""octavo::linear as ai.octavo.Linear.

linear(x, packed, scale, zero_point, bias, n, k, group, activation)
    ->  Linear(x, packed, scale, zero_point, bias)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from octavo.core.kernels import checksum
from octavo.graph.native.linear import PackedValues, linear
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.native.constants import bias_of
from octavo.torch.exports.program import call_of
from octavo.torch.memory import array


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """The layer's output."""
    call = call_of(node)
    layer = layer_of(call["packed"])
    out = node.outputs[0].name or layer
    stored = [d.tensor(call[key]) for key in ("packed", "scale")]
    w = d.once(("packed", node.graph), stored, lambda: _weight(d, call, layer, node.graph))
    y = linear(
        d.emitter,
        d.float32(call["x"], node),
        w,
        bias_of(d, call["bias"], w.n, layer, node),
        group_size=call["group"],
        name=node.name or layer,
        out=f"{out}_float32",
        activation=call["activation"],
    )
    return [d.in_kind(y, call["x"], out)]


def _weight(d: Drawing, call: dict[str, Any], layer: str, graph: ir.Graph | None) -> PackedValues:
    packed, scale = d.tensor(call["packed"]), d.tensor(call["scale"])
    n, k = call["n"], call["k"]
    zero = np.zeros(n, np.int8)
    if call["zero_point"] is not None:
        zero = array(d.tensor(call["zero_point"]).to(torch.int8))
    w = packed.view(torch.int8).reshape(-(-n // 16), -(-k // 4), 16, 4)
    return PackedValues(
        d.constant(w, f"{layer}.weight_quantized", graph),
        d.constant(scale, f"{layer}.weight_scale", graph),
        d.constant(zero, f"{layer}.weight_zero_point", graph),
        n,
        k,
        checksum(array(packed)),
    )
