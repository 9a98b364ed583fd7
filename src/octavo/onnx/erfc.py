"""`Erfc`, which ONNX has not, written with `Erf`.

    Erfc(x)           ->  Sub(1, Erf(x))
    Erfc(Mul(-x, c))  ->  Add(1, Erf(Mul(x, c)))       Erf is odd

tf2onnx 1.17 hands TensorFlow's operator on as it is; Keras' exact GELU, x/2 erfc(-x sqrt(1/2)), has
one. The second form is how other exporters write GELU, so that it is recognized.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.graph.emit.emitter import Emitter, Names
from octavo.graph.rewrite.sweeper import Sweeper

_STANDARD = ("", "ai.onnx")
_SAME_TYPE = frozenset(["Mul", "Neg", "Add", "Sub", "Div", "MatMul", "Gemm", "Conv", "Reshape"])
_MOST_STEPS = 64


def write_out_erfc(model: ir.Model) -> int:
    """Replaces every such node in `model`; returns how many there were."""
    nodes = [node for graph in graphs_of(model) for node in graph if _is(node, "Erfc")]
    if nodes:
        emitter, sweeper = Emitter(model, Names(model), opset_of(model)), Sweeper(model)
        for node in nodes:
            _write_out(node, emitter, sweeper)
    return len(nodes)


def _write_out(node: ir.Node, e: Emitter, sweeper: Sweeper) -> None:
    argument, name = node.inputs[0], node.outputs[0].name or "erfc"
    assert argument is not None
    one = e.scalar(1, _dtype(argument))
    opposite = _opposite(argument, e, f"{name}_argument")
    erf = e.op("Erf", [argument if opposite is None else opposite], out=f"{name}_erf")
    new = e.op("Sub" if opposite is None else "Add", [one, erf], out=name)
    e.flush_before(node)
    sweeper.replace(node, [new])


def _opposite(argument: ir.Value, e: Emitter, name: str) -> ir.Value | None:
    """`-argument`, where it is there already or one product away."""
    maker = argument.producer()
    if _is(maker, "Neg"):
        return maker.inputs[0]
    if not _is(maker, "Mul"):
        return None
    for index, factor in enumerate(maker.inputs):
        negative = None if factor is None else factor.producer()
        if _is(negative, "Neg"):
            factors = list(maker.inputs)
            factors[index] = negative.inputs[0]
            return e.op("Mul", factors, out=name)
    return None


def _is(node: ir.Node | None, op_type: str) -> TypeGuard[ir.Node]:
    return node is not None and node.op_type == op_type and node.domain in _STANDARD


def _dtype(value: ir.Value) -> np.dtype[Any]:
    """What `value` holds: as it says, or as what it is computed from says."""
    stack, seen = [value], 0
    while stack and seen < _MOST_STEPS:
        seen += 1
        found = stack.pop()
        tensor = found.const_value
        if tensor is not None or found.dtype is not None:
            dtype = found.dtype if tensor is None else tensor.dtype
            assert dtype is not None
            return dtype.numpy()
        maker = found.producer()
        if maker is not None and maker.op_type in _SAME_TYPE:
            stack += [v for v in maker.inputs[:2] if v is not None]
    return np.dtype(np.float32)
