"""What is added to a Linear's outputs, and can be added by it.

    Linear ─ Add(constant of one row)    ->  Linear with that bias
    Linear ─ Add(another activation)     ->  Linear with that residual

The operator adds any residual that broadcasts with its outputs, so that the rule need not know
shapes; one of the outputs' own shape costs nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.walk import only_reader
from octavo.graph.context import Context
from octavo.ir.linear import Linear


def fold_bias(node: ir.Node, c: Context) -> ir.Node | None:
    """Fold a constant that is added behind the Linear `node` into its bias; return the new node."""
    linear = Linear.of(node)
    assert linear is not None
    reader = only_reader(node.outputs[0])
    if reader is None or linear.activation != "none" or linear.residual is not None:
        return None
    add, index = reader
    if add.op_type not in ("Add", "Sum") or add.domain not in ("", "ai.onnx"):
        return None
    if len(add.inputs) != 2:
        return None
    rank = 1 if linear.x.shape is None else len(linear.x.shape)
    row = one_row(add.inputs[1 - index], linear.weight.n, rank, c.constants)
    before = np.zeros(linear.weight.n) if linear.bias is None else c.array(linear.bias)
    if row is None or before is None:
        return None
    total = (before.astype(np.float64) + row).astype(np.float32)
    value = c.emitter.constant(total, f"{node.name}_bias", node.graph)
    return c.absorb(node, add, replace(linear, bias=value))


def one_row(
    value: ir.Value | None, n: int, rank: int, constants: ConstantLookup
) -> npt.NDArray[Any] | None:
    """Read a float constant that is the same for all rows of a `rank`-dimensional [..., n].

    Return float64 [n]; None for another value.
    """
    tensor = constants.tensor(value)
    if tensor is None or tensor.dtype is not ir.DataType.FLOAT:
        return None
    shape = tensor.shape.numpy()
    if len(shape) > rank or any(d != 1 for d in shape[:-1]) or shape[-1:] not in ((), (1,), (n,)):
        return None
    return np.broadcast_to(np.array(tensor.numpy(), np.float64).reshape(-1), (n,))


# docs/notes/native_target.md: "A residual need not have the layer's shape"
def fold_residual(node: ir.Node, c: Context) -> ir.Node | None:
    """Fold an Add behind the Linear `node` into it as its residual; return the new node."""
    linear = Linear.of(node)
    assert linear is not None
    reader = only_reader(node.outputs[0])
    if reader is None or linear.residual is not None:
        return None
    add, index = reader
    if add.op_type != "Add" or add.domain not in ("", "ai.onnx"):
        return None
    other = add.inputs[1 - index]
    if other is None or (other.shape is not None and len(other.shape) < 2):
        return None
    return c.absorb(node, add, replace(linear, residual=other))
