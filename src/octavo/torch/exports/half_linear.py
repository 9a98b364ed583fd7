"""octavo::half_linear: the weight in 16 bits behind a Cast, computed in float32.

half_linear(x, packed, bias)  ->  Cast(w float16 [K, N]) ─ MatMul(x, .) ─ Add(bias)

ONNX Runtime folds the Cast when it loads the file.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from octavo.core.half_linear import HalfLinear
from octavo.torch.exports.drawing import Drawing, Outputs, layer_of
from octavo.torch.exports.linear import finished
from octavo.torch.exports.program import call_of
from octavo.torch.memory import array


def draw(node: ir.Node, d: Drawing) -> Outputs:
    """The layer's output."""
    call = call_of(node)
    layer = layer_of(call["packed"])
    out = node.outputs[0].name or layer
    x = d.float32(call["x"], node)
    w = d.once("half_linear", [d.tensor(call["packed"])], lambda: _weight(d, call, layer))
    wide = d.emitter.cast(w, ir.DataType.FLOAT, f"{out}_weight")
    y = d.emitter.op("MatMul", [x, wide], out=f"{out}_product", name=node.name)
    return [finished(node, d, call, y)]


def _weight(d: Drawing, call: dict[str, Any], layer: str) -> ir.Value:
    packed = d.tensor(call["packed"])
    name = str(packed.dtype).removeprefix("torch.")
    core = HalfLinear(array(packed), call["n"], call["k"], name)
    w = torch.from_numpy(core.weights()).to(packed.dtype)  # exact: it came from there
    return d.constant(w.t(), f"{layer}.weight_{name}")
