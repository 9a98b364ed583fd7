"""octavo::linear: the nodes of `octavo.graph.linear`, per row.

linear(x, packed, ...)  ->  quantize_rows(x) ─ MatMulIntegerToFloat(q [K, N]) ─ Mul(row) ─ Add(bias)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from torch import Tensor

from octavo.core.kernels import unpack
from octavo.graph.activate import GELUS, activate
from octavo.graph.bias_gelu import feeds_gelu
from octavo.graph.linear import QuantizedWeightValues, linear_rows
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.program import call_of
from octavo.torch.memory import array, optional

# Of products that ONNX Runtime adds in int32 without overflow; halved for weights with zero points.
MOST_INPUTS = 65_536


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """The layer's output."""
    call = call_of(node)
    layer, k = layer_of(call["packed"]), call["k"]
    out = node.outputs[0].name or layer
    x = d.float32(call["x"], node)
    w = d.once("linear", _stored(d, call), lambda: _weight(d, call, layer))
    if call["group"]:
        d.note(layer, f"activations per row: target portable has no groups of {call['group']}")
    if k > MOST_INPUTS // (1 if call["zero_point"] is None else 2):
        d.note(layer, f"computed in float: the sums of {k} inputs would overflow int32")
        matrix = d.dequantized(w, None, 1, f"{out}_weight")
        y = d.emitter.op("MatMul", [x, matrix], out=f"{out}_product", name=node.name)
    else:
        rows = d.activations.per_row(x, k, node)
        y = linear_rows(d.emitter, rows, w, name=node.name or layer, out=f"{out}_product")
        d.activations.uniform.mark(y)
    return [finished(node, d, call, y)]


def finished(node: ir.Node, d: Drawing, call: dict[str, Any], y: ir.Value) -> ir.Value:
    """Bias and activation applied to the product `y`, in the input's own type."""
    out = node.outputs[0].name or "y"
    activation = call.get("activation", "none")
    if call["bias"] is not None:
        # As a Sum, ONNX Runtime leaves it apart from a GELU; see `octavo.graph.bias_gelu`.
        apart = activation in GELUS or feeds_gelu(node.outputs[0])
        y = d.emitter.op("Sum" if apart else "Add", [y, call["bias"]], out=f"{out}_biased")
    y = activate(d.emitter, y, activation, out=f"{out}_{activation}")
    return d.in_kind(y, call["x"], out)


def _stored(d: Drawing, call: dict[str, Any]) -> list[Tensor]:
    return [d.tensor(call["packed"]), d.tensor(call["scale"])]


def _weight(d: Drawing, call: dict[str, Any], layer: str) -> QuantizedWeightValues:
    packed, scale = _stored(d, call)
    q = unpack(array(packed), call["n"], call["k"])
    zero = None if call["zero_point"] is None else optional(d.tensor(call["zero_point"]))
    if zero is None and call["k"] <= MOST_INPUTS:
        zero = np.zeros((), np.int32)  # see `one_if_equal`
    return d.integers(np.ascontiguousarray(q.T), array(scale), zero, f"{layer}.weight")
