"""The integer products of target portable, taken apart.

MatMulIntegerToFloat ─ Mul(row)                       per row
MatMulInteger ─ Cast ─ Mul(Mul(scale, scale))         per tensor, also quantize_dynamic's
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.dims import filled_with
from octavo.ir import MS
from octavo.onnx.targets.to_native.recognition import Recognition
from octavo.onnx.targets.to_native.rows import Rows, made_by, number, other, read_by, rows_of


@dataclass(frozen=True)
class Product:
    """`alpha * x W`: the integers `w` (no float), their scale and zero point, and the last node."""

    x: ir.Value
    w: ir.Value
    scale: ir.Value
    zero_point: ir.Value | None
    alpha: np.float32
    last: ir.Node
    per_row: bool


def product_of(node: ir.Node, t: Recognition) -> Product | None:
    """The product that `node` multiplies the integers of; None for another form."""
    if node.op_type == "MatMulIntegerToFloat" and node.domain == MS and len(node.inputs) == 6:
        return _scaled(node, t)
    if node.op_type == "MatMulInteger" and node.domain in ("", "ai.onnx"):
        return _unscaled(node, t)
    return None


def _scaled(node: ir.Node, t: Recognition) -> Product | None:
    q, w, step, scale, zero, w_zero = node.inputs
    rows = rows_of(q, t)
    if rows is None or w is None or scale is None or not _same(zero, q, t):
        return None
    if rows.row is None:
        fits = step is rows.scale and zero is rows.zero_point
        return Product(rows.x, w, scale, w_zero, np.float32(1), node, False) if fits else None
    factor, last = number(step, t), read_by(node.outputs[0], "Mul")
    if factor is None or last is None or other(last, node.outputs[0]) is not rows.row:
        return None
    assert rows.step is not None
    return Product(rows.x, w, scale, w_zero, _alpha(factor, rows.step), last, True)


def _alpha(factor: np.float32, step: np.float32) -> np.float32:
    """The factor that `factor` holds beside `step`: of those that round to it, the shortest."""
    near = np.float32(factor / step)
    around = [near]
    for towards in (-np.inf, np.inf):
        value = near
        for _ in range(2):
            value = np.nextafter(value, np.float32(towards))
            around.append(value)
    exact = [value for value in around if value * step == factor]
    return min(exact, key=lambda value: len(str(value)), default=near)


def _same(given: ir.Value | None, q: ir.Value | None, t: Recognition) -> bool:
    """Whether the product's zero point is that which `q` was quantized with."""
    node = None if q is None else q.producer()
    while node is not None and node.op_type == "Reshape":
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    if node is None or node.op_type != "QuantizeLinear":
        return True  # DynamicQuantizeLinear: its own output is asked for
    of_rows = made_by(node.inputs[2], "ConstantOfShape")
    stated = number(node.inputs[2], t) if of_rows is None else filled_with(of_rows)
    product_takes = number(given, t)
    return product_takes is not None and product_takes == stated


def _unscaled(node: ir.Node, t: Recognition) -> Product | None:
    found = scaled_integers(node, t)
    if found is None:
        return None
    rows, scale, last = found
    w, zero = node.inputs[1], node.inputs[3] if len(node.inputs) > 3 else None
    if w is None or rows.row is not None:
        return None
    return Product(rows.x, w, scale, zero, np.float32(1), last, False)


def scaled_integers(node: ir.Node, t: Recognition) -> tuple[Rows, ir.Value, ir.Node] | None:
    """Of MatMulInteger or ConvInteger: the activation, the weight's scale, and the Mul behind it.

    The scales stand in one Mul: that of the activation, a constant step if it is per image, and
    that of the weight.
    """
    rows = rows_of(node.inputs[0], t)
    cast = read_by(node.outputs[0], "Cast")
    last = None if cast is None else read_by(cast.outputs[0], "Mul")
    if rows is None or cast is None or last is None or len(node.inputs) < 3:
        return None
    scales = made_by(other(last, cast.outputs[0]), "Mul")
    if scales is None:
        return None
    for i in (0, 1):
        mine, weight = scales.inputs[i], scales.inputs[1 - i]
        if rows.row is None:
            fits = mine is rows.scale and node.inputs[2] is rows.zero_point
        else:
            fits = number(mine, t) == rows.step and _same(node.inputs[2], node.inputs[0], t)
        if fits and weight is not None:
            return rows, weight, last
    return None
