"""Linear, GroupedLinear and GatedLinear with stock operators.

    Linear(x, W, B, [residual])  ->  quantize_rows(x) ─ MatMulIntegerToFloat ─ Mul(row scale)
                                     ─ Add(B) ─ activation ─ Add(residual)

The parts of a GroupedLinear or GatedLinear share the quantized rows. Weights in groups are
multiplied by MatMulNBits: `octavo.graph.lower.blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.stored_integers import one_if_equal
from octavo.graph.context import Context
from octavo.graph.lower.activation_nodes import GELUS, activate, feeds_gelu
from octavo.graph.lower.blocks import (
    IN_FLOAT,
    BlockForm,
    BlockIntegers,
    BlockWeightValues,
    linear_block,
)
from octavo.graph.lower.products import dequantize, linear_rows
from octavo.ir.embedding import Embedding
from octavo.ir.linear import GatedLinear, GroupedLinear, Linear
from octavo.ir.operator import LAYER, Operator
from octavo.ir.weight import QuantizedWeightValues, Weight, WeightIntegers

# Of products that ONNX Runtime adds in int32 without overflow; halved for weights with zero points.
INT32_INPUTS = 65_536
FIRST_WITH_AXIS = 13  # opset of DequantizeLinear with one scale a channel


def lower(layer: Linear, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower a Linear node; return its output."""
    return [_layer(layer, node, c, node.name or "linear", node.outputs[0])]


def lower_grouped(group: GroupedLinear, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower a GroupedLinear node; return its outputs."""
    return [
        _layer(part, node, c, each, out)
        for part, each, out in zip(group.parts, _names(group, node), node.outputs, strict=True)
    ]


def lower_gated(gated: GatedLinear, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower a GatedLinear node; return its output."""
    (y,) = node.outputs
    names = _names(gated, node)
    factors = [
        _layer(part, node, c, each, y, f"{y.name}_{what}")
        for part, each, what in zip(gated.parts, names, ("gate", "factor"), strict=True)
    ]
    return [c.emitter.op("Mul", factors, out=f"{y.name}_gated")]


def _names(group: GroupedLinear | GatedLinear, node: ir.Node) -> list[str]:
    """Return the names of the layers that a node is made of."""
    name = node.name or "linear"
    names = name.split("+")
    return (
        names
        if len(names) == len(group.parts)
        else [f"{name}_{i}" for i, _ in enumerate(group.parts)]
    )


def share_tables(operators: Sequence[Operator], c: Context) -> None:
    """Tells `c` which weights lookups read too."""
    packed = [o.weight for o in operators if isinstance(o, Embedding) and o.packed]
    matrices = {w.key for o in operators if not isinstance(o, Embedding) for w in o.weights()}
    # Tables in groups are packed whether or not a linear layer reads them.
    c.tables |= {w.key for w in packed if not w.format.group or w.key in matrices}


def _layer(
    part: Linear, node: ir.Node, c: Context, name: str, output: ir.Value, out: str = ""
) -> ir.Value:
    """Lower one layer to `output` or, called `out`, to a part of it."""
    out = out or output.name or name
    y = _product(part, node, c, name, f"{out}_product")
    return _behind(part, y, c, name, out, apart=feeds_gelu(output))


def _behind(part: Linear, y: ir.Value, c: Context, name: str, out: str, *, apart: bool) -> ir.Value:
    """Put bias, activation and residual behind product `y`; `apart`: a GELU reads the result."""
    e = c.emitter
    bias = c.array(part.bias)
    if part.bias is not None and (bias is None or np.any(bias)):
        # As a Sum, ONNX Runtime leaves it apart from a GELU; see `activation_nodes`.
        addition = "Sum" if apart or part.activation in GELUS else "Add"
        y = e.op(addition, [y, part.bias], out=f"{out}_biased", name=f"{name}_bias")
    y = activate(e, y, part.activation, out=f"{out}_{part.activation}")
    if part.residual is not None:
        y = e.op("Add", [y, part.residual], out=f"{out}_sum", name=f"{name}_residual")
    return y


def lower_in_float(layer: Linear, node: ir.Node, c: Context) -> ir.Value:
    """Lower a Linear node without quantized rows, where `layer.x` is the same in every run.

    ONNX Runtime computes the operators used for this when it opens a file.
    """
    out = node.outputs[0].name or "linear"
    product, name = f"{out}_product", node.name or "linear"
    if layer.weight.format.group:
        held = blocks(layer.weight, c)
        y = linear_block(c.emitter, layer.x, held, name=name, out=product, accuracy_level=IN_FLOAT)
    else:
        wide = _widened(layer.weight, c)
        y = c.emitter.op("MatMul", [layer.x, wide], out=product, name=node.name)
    return _behind(layer, y, c, node.name or "linear", out, apart=False)


def _widened(w: Weight, c: Context) -> ir.Value:
    """Build the float32 matrix [K, N] without DequantizeLinear, which ONNX Runtime leaves in."""

    def make() -> list[ir.Value]:
        found = w.integers()
        parts = [c.hold(np.ascontiguousarray(found.q.T), w.part_name("quantized"))]
        if np.any(found.zeros):
            parts.append(c.hold(found.zeros, w.part_name("zero_point")))
        return [c.hold(found.scale, w.part_name("scale")), *parts]

    e = c.emitter
    scale, *integers = c.once(("widened", w.key), make)
    wide, *zeros = (e.cast(part, ir.DataType.FLOAT, f"{part.name}_wide") for part in integers)
    for zero in zeros:
        wide = e.op("Sub", [wide, zero], out=f"{w.name}_centred")
    return e.op("Mul", [wide, scale], out=f"{w.name}_float")


def _product(part: Linear, node: ir.Node, c: Context, name: str, out: str) -> ir.Value:
    e, w, k = c.emitter, part.weight, part.weight.k
    if w.format.group:
        return _product_in_blocks(part, node, c, name, out)
    if part.group_size:
        c.note(
            node.meta.get(LAYER, name),
            f"activations per row: target portable has no groups of {part.group_size}",
        )
    if _overflows(w):
        c.note(
            node.meta.get(LAYER, name),
            f"computed in float: the sums of {k} inputs would overflow int32",
        )
        return e.op("MatMul", [part.x, _in_float(w, c, out)], out=out, name=name)
    rows = c.activations.per_row(part.x, k, node)
    if part.alpha != 1.0:
        rows = replace(rows, scale=_times(rows.scale, part.alpha, c))
    y = linear_rows(e, rows, matrix(w, c), name=name, out=out)
    c.uniform.mark(y)
    return y


def _product_in_blocks(part: Linear, node: ir.Node, c: Context, name: str, out: str) -> ir.Value:
    if not part.group_size:
        note = f"activations per group of {part.weight.format.group}: MatMulNBits has no rows"
        c.note(node.meta.get(LAYER, name), note)
    if part.weight.format.minimum:
        note = "weights rounded anew to 8 bits: stock operators have no groups with a minimum"
        c.note(node.meta.get(LAYER, name), note)
    return linear_block(c.emitter, part.x, blocks(part.weight, c), name=name, out=out)


def blocks(w: Weight, c: Context, form: BlockForm = BlockForm.MATRIX) -> BlockWeightValues:
    """Return a weight in groups as ONNX Runtime's operators read it."""

    def make() -> BlockWeightValues:
        def hold(array: npt.NDArray[Any], part: str) -> ir.Value:
            return c.hold(array, w.part_name(part))

        return form.hold(BlockIntegers.of(w.groups()), hold)[0]

    return c.once(("blocks", w.key, form), make)


def _overflows(w: Weight) -> bool:
    """Tell whether int32 sums of its products may; for weights of a plan that has been seen to."""
    if w.matrix is not None or w.k <= INT32_INPUTS // 2:
        return False
    return w.k > INT32_INPUTS or w.integers().zero_point is not None


def _times(step: ir.Value, alpha: float, c: Context) -> ir.Value:
    """Return the constant `step` times `alpha`."""
    tensor = step.const_value
    assert tensor is not None
    return c.emitter.scalar(np.float32(tensor.numpy()) * np.float32(alpha), np.float32)


def matrix(w: Weight, c: Context) -> QuantizedWeightValues:
    """W as [K, N]; one that lookups read too lies as a table, [N, K], behind a Transpose."""
    if w.matrix is not None:
        return w.matrix()

    def make() -> QuantizedWeightValues:
        if w.key not in c.tables:
            return _hold(w, c, transposed=True)
        held = table(w, c)
        turned = c.prelude.transpose(held.q, [1, 0], f"{held.q.name}_transposed")
        c.prelude.flush_first()
        return QuantizedWeightValues(turned, held.scale, held.zero_point)

    return c.once(("matrix", w.key), make)


def table(w: Weight, c: Context) -> QuantizedWeightValues:
    """W as [N, K], for lookups that share it with a linear layer."""
    return c.once(("table", w.key), lambda: _hold(w, c, transposed=False))


def _hold(w: Weight, c: Context, *, transposed: bool) -> QuantizedWeightValues:
    found = w.integers()
    zero = found.zeros
    if w.k <= INT32_INPUTS:  # else it is dequantized
        zero = one_if_equal(zero)
    q = np.ascontiguousarray(found.q.T if transposed else found.q)
    return c.hold_integers(w, WeightIntegers(q, found.scale, zero))


def _in_float(w: Weight, c: Context, out: str) -> ir.Value:
    """Build the float32 matrix [K, N] of `w`."""
    if c.opset >= FIRST_WITH_AXIS:
        return dequantize(c.emitter, matrix(w, c), out=f"{out}_weight", axis=1)

    def make() -> ir.Value:
        found = w.integers()
        wide = (found.q.astype(np.float32).T - found.zeros) * found.scale
        return c.hold(np.ascontiguousarray(wide), f"{w.name}_float")

    return c.once(("float", w.key), make)
