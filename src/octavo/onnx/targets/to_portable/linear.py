"""ai.octavo.Linear and GroupedLinear with ONNX Runtime's operators.

    Linear(x, W, ..., B, [residual])  ->  quantize_rows(x) ─ MatMulIntegerToFloat ─ Mul(row scale)
                                          ─ Add(B) ─ activation ─ Add(residual)

The parts of a GroupedLinear share the quantized rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.activate import GELUS, activate
from octavo.graph.bias_gelu import feeds_gelu
from octavo.graph.integers import one_if_equal
from octavo.graph.linear import QuantizedWeightValues, dequantize, linear_rows
from octavo.graph.native.linear import LinearNode, PackedValues, grouped_parts, unpacked
from octavo.onnx.targets.turning import Outputs, Turning

# Of products that ONNX Runtime adds in int32 without overflow; halved for weights with zero points.
MOST_INPUTS = 65_536
FIRST_WITH_AXIS = 13  # opset of DequantizeLinear with one scale a channel


def draw(node: ir.Node, t: Turning) -> Outputs:
    """The output of a Linear node."""
    part = LinearNode.of(node)
    assert part is not None
    t.names.nodes.free(node.name)
    return [_layer(part, node, t, node.name or "linear", node.outputs[0])]


def draw_grouped(node: ir.Node, t: Turning) -> Outputs:
    """The outputs of a GroupedLinear node."""
    parts, name = grouped_parts(node), node.name or "linear"
    names = name.split("+")
    if len(names) != len(parts):
        names = [f"{name}_{i}" for i in range(len(parts))]
    return [
        _layer(part, node, t, each, out)
        for part, each, out in zip(parts, names, node.outputs, strict=True)
    ]


def _layer(part: LinearNode, node: ir.Node, t: Turning, name: str, output: ir.Value) -> ir.Value:
    e, out = t.emitter, output.name or name
    y = _product(part, node, t, name, f"{out}_product")
    if np.any(t.array(part.bias)):
        # As a Sum, ONNX Runtime leaves it apart from a GELU; see `octavo.graph.bias_gelu`.
        apart = part.activation in GELUS or feeds_gelu(output)
        bias = t.once(("bias", part.bias), lambda: t.hold(t.array(part.bias), part.bias.name))
        y = e.op("Sum" if apart else "Add", [y, bias], out=f"{out}_biased", name=f"{name}_bias")
    y = activate(e, y, part.activation, out=f"{out}_{part.activation}")
    if part.residual is not None:
        y = e.op("Add", [y, part.residual], out=f"{out}_sum", name=f"{name}_residual")
    return y


def _product(part: LinearNode, node: ir.Node, t: Turning, name: str, out: str) -> ir.Value:
    e, w, k = t.emitter, part.weight, part.weight.k
    affine = bool(np.any(t.array(w.zero_point)))
    if part.group_size:
        t.note(name, f"activations per row: target portable has no groups of {part.group_size}")
    if k > MOST_INPUTS // (2 if affine else 1):
        t.note(name, f"computed in float: the sums of {k} inputs would overflow int32")
        return e.op("MatMul", [part.x, _in_float(w, t, out)], out=out, name=name)
    rows = t.activations.per_row(part.x, k, node)
    y = linear_rows(e, rows, matrix(w, t), name=name, out=out)
    t.activations.uniform.mark(y)
    return y


def matrix(w: PackedValues, t: Turning) -> QuantizedWeightValues:
    """W as [K, N]; one that lookups read too lies as a table, [N, K], behind a Transpose."""

    def make() -> QuantizedWeightValues:
        if w.w not in t.tables:
            return _hold(integers(w, t).T, w, t)
        table = t.once(("table", w.w), lambda: _hold(integers(w, t), w, t))
        turned = t.prelude.transpose(table.q, [1, 0], f"{table.q.name}_transposed")
        t.prelude.flush_first()
        return QuantizedWeightValues(turned, table.scale, table.zero_point)

    return t.once(("matrix", w.w, w.scale, w.zero_point), make)


def integers(w: PackedValues, t: Turning) -> npt.NDArray[np.int8]:
    """int8 [N, K]."""
    found = unpacked(t.array(w.w), w.n, w.k)
    t.constants.release(w.w)
    return found


def _hold(q: npt.NDArray[np.int8], w: PackedValues, t: Turning) -> QuantizedWeightValues:
    scale, zero = t.array(w.scale), t.array(w.zero_point)
    if w.k <= MOST_INPUTS:  # else it is dequantized
        zero = one_if_equal(zero)
    return t.integers(np.ascontiguousarray(q), scale, zero, (w.w, w.scale, w.zero_point))


def _in_float(w: PackedValues, t: Turning, out: str) -> ir.Value:
    """The float32 matrix [K, N]."""
    if t.opset >= FIRST_WITH_AXIS:
        return dequantize(t.emitter, matrix(w, t), out=f"{out}_weight", axis=1)
    scale, zero = t.array(w.scale), t.array(w.zero_point).astype(np.float32)
    wide = (integers(w, t).astype(np.float32).T - zero) * scale
    return t.once(("float", w.w), lambda: t.hold(np.ascontiguousarray(wide), f"{w.w.name}_float"))
