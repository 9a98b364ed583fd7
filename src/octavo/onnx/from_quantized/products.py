"""Products of integers, with the float operands that they stand for.

    q ─ MatMulInteger(W) ─ Cast ─ Mul(scales)      ->  x W, per tensor; convolutions likewise
    q ─ MatMulIntegerToFloat(W) ─ [Mul(row)]       ->  x W, per tensor or per row
    DynamicQuantizeMatMul(x, W)                    ->  x W

q is one of the forms of `quantized_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.dims import filled_with
from octavo.ir import MS
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.from_quantized.quantized_rows import (
    Rows,
    made_by,
    number,
    other,
    read_by,
    rows_of,
)
from octavo.onnx.from_quantized.trace_moves import move, trace
from octavo.onnx.operators.reader import input_at

MOST_FACTORS = 2  # the scale of the activation and that of the weight


@dataclass(frozen=True)
class Product:
    """`alpha * x W + bias`: the integers `w` (no float), their scale and zero point, and the last
    node. `per_row`: x was quantized so."""

    x: ir.Value
    w: ir.Value
    scale: ir.Value
    zero_point: ir.Value | None
    last: ir.Node
    alpha: float = 1.0
    bias: ir.Value | None = None
    per_row: bool = False


def product_of(node: ir.Node, t: RestoringContext) -> Product | None:
    """Return the integer product that `node` computes or scales; None for another form."""
    if node.op_type == "MatMulIntegerToFloat" and node.domain == MS:
        return _scaled(node, t)
    if node.op_type == "DynamicQuantizeMatMul" and node.domain == MS:
        x, w, scale = node.inputs[:3]
        if x is None or w is None or scale is None:
            return None
        return Product(x, w, scale, input_at(node, 3), node, bias=input_at(node, 4))
    if node.op_type == "MatMulInteger" and node.domain in ("", "ai.onnx"):
        return _unscaled(node, t)
    return None


def _scaled(node: ir.Node, t: RestoringContext) -> Product | None:
    q, w, step, scale = node.inputs[:4]
    zero, w_zero, bias = (input_at(node, i) for i in (4, 5, 6))
    rows = rows_of(q, t)
    if rows is None or w is None or scale is None or not _same(zero, q, t):
        return None
    if rows.row is None:
        fits = step is rows.scale and zero is rows.zero_point
        return Product(rows.x, w, scale, w_zero, node, bias=bias) if fits else None
    factor, last = number(step, t), read_by(node.outputs[0], "Mul")
    if factor is None or last is None or other(last, node.outputs[0]) is not rows.row:
        return None
    assert rows.step is not None
    alpha = _alpha(factor, rows.step)
    return None if bias else Product(rows.x, w, scale, w_zero, last, alpha, per_row=True)


def _alpha(factor: np.float32, step: np.float32) -> float:
    """Return the shortest of the factors whose product with `step` rounds to `factor`."""
    near = np.float32(factor / step)
    around = [near]
    for towards in (-np.inf, np.inf):
        value = near
        for _ in range(2):
            value = np.nextafter(value, np.float32(towards))
            around.append(value)
    exact = [value for value in around if value * step == factor]
    return float(min(exact, key=lambda value: len(str(value)), default=near))


def _same(given: ir.Value | None, q: ir.Value | None, t: RestoringContext) -> bool:
    """Tell whether the product's zero point is that which `q` was quantized with."""
    node = None if q is None else q.producer()
    while node is not None and node.op_type == "Reshape":
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    if node is None or node.op_type != "QuantizeLinear":
        return True  # DynamicQuantizeLinear: its own output is asked for
    of_rows = made_by(node.inputs[2], "ConstantOfShape")
    stated = number(node.inputs[2], t) if of_rows is None else filled_with(of_rows)
    product_takes = number(given, t)
    return product_takes is not None and product_takes == stated


def _unscaled(node: ir.Node, t: RestoringContext) -> Product | None:
    found = scaled_integers(node, t)
    w = node.inputs[1]
    if found is None or w is None or found[0].row is not None:
        return None
    rows, scale, last = found
    return Product(rows.x, w, scale, input_at(node, 3), last)


def scaled_integers(
    node: ir.Node, t: RestoringContext, sum_: ir.Value | None = None
) -> tuple[Rows, ir.Value, ir.Node] | None:
    """Return the activation of MatMulInteger or ConvInteger, the weight's scale and the last Mul.

    `sum_` is what is scaled, by default the node's output. Two scales are multiplied in, one by one
    or as a product: that of the activation, a constant step if it is per image, and that of the
    weight.
    """
    rows, cast = rows_of(node.inputs[0], t), read_by(sum_ or node.outputs[0], "Cast")
    if rows is None and cast is not None:
        return _of_table(node, cast, t)
    if rows is None or cast is None or cast.attributes["to"].as_int() != ir.DataType.FLOAT:
        return None
    factors: list[ir.Value] = []
    last = cast
    while len(factors) < MOST_FACTORS:
        at = last.outputs[0]
        product = read_by(at, "Mul")
        by = None if product is None else other(product, at)
        if product is None or by is None:
            return None
        factors += _factors(by, rows, node, t)
        last = product
    for mine, weight in (factors, factors[::-1]) if len(factors) == MOST_FACTORS else ():
        if _is_scale(mine, rows, node, t):
            return rows, weight, last
    return None


def _of_table(
    node: ir.Node, cast: ir.Node, t: RestoringContext
) -> tuple[Rows, ir.Value, ir.Node] | None:
    """Match rows of an integer table multiplied as they are: the weight takes both scales."""
    q, zero = node.inputs[0], input_at(node, 2)
    table, moves = (None, ()) if q is None else trace(q)
    last = read_by(cast.outputs[0], "Mul")
    scales = None if last is None else other(last, cast.outputs[0])
    if not moves or last is None or scales is None or not t.are_constant(table, zero, scales):
        return None
    zeros = None if zero is None else t.numbers(zero)
    assert table is not None
    w = t.weight(table, np.ones((), np.float32), zeros)
    return None if w is None else (Rows(move(w, moves, t)), scales, last)


def _factors(by: ir.Value, rows: Rows, node: ir.Node, t: RestoringContext) -> Iterator[ir.Value]:
    """Yield the factors of `by` where one of two is the activation's scale, else `by` itself."""
    product = made_by(by, "Mul")
    parts = [] if product is None else [v for v in product.inputs if v is not None]
    if any(_is_scale(v, rows, node, t) for v in parts):
        yield from parts
    else:
        yield by


def _is_scale(value: ir.Value, rows: Rows, node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `value` is the scale of what `node` multiplies, whose zero point it takes."""
    zero = input_at(node, 2)
    if rows.row is None:
        return value is rows.scale and zero is rows.zero_point
    return number(value, t) == rows.step and _same(zero, node.inputs[0], t)
