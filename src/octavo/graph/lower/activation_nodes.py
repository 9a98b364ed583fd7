"""What a linear layer applies to its outputs, as a node of its own; ONNX Runtime has each."""

from __future__ import annotations

import onnx_ir as ir

from octavo.core.kernels import Activation
from octavo.graph.emit.emitter import Emitter
from octavo.ir import MS

GELUS = (Activation.GELU.value, Activation.GELU_TANH.value)

_OPERATORS = {
    Activation.RELU: ("", "Relu"),
    Activation.GELU: (MS, "Gelu"),
    Activation.GELU_TANH: (MS, "FastGelu"),
    Activation.TANH: ("", "Tanh"),
    Activation.SIGMOID: ("", "Sigmoid"),
}


def activate(e: Emitter, y: ir.Value, activation: str, *, out: str) -> ir.Value:
    """`activation` of float32 `y`."""
    kind = Activation.parse(activation)
    if kind is Activation.NONE:
        return y
    if kind is Activation.SILU:
        return e.op("Mul", [y, e.op("Sigmoid", [y], out=f"{out}_gate")], out=out)
    domain, op_type = _OPERATORS[kind]
    return e.op(op_type, [y], out=out, domain=domain)
