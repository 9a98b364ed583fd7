"""DequantizeLinear: of a stored weight, and behind what quantized an activation.

    DequantizeLinear(W, scale, zero)                              ->  W, in blocks too
    DequantizeLinear(Gather(table, i), scale, zero)               ->  Gather(W, i)
    x ─ DynamicQuantizeLinear ─ DequantizeLinear                  ->  x
    x ─ QuantizeLinear(s, z) ─ DequantizeLinear(s, z)             ->  x, or Relu(x), or Clip(x)

The last has a range that was calibrated. ONNX Runtime's quantizer takes a Relu out where z lets no
negative number through, and a Clip to 0..6 likewise: they are put back.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from octavo.onnx.from_quantized.blocks import typed_blocks
from octavo.onnx.from_quantized.context import BYTES, RestoringContext
from octavo.onnx.from_quantized.quantized_rows import made_by, number, rows_of
from octavo.onnx.from_quantized.trace_moves import move, trace
from octavo.onnx.operators.reader import attribute_int, input_at

ONE = ((), (1,))
SIX = 6.0
NOT_NEGATIVE = frozenset("Relu Sigmoid Softmax Clip Abs Exp HardSigmoid".split())


def restore(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was one of these; a float value stands in its place then."""
    if node.domain not in ("", "ai.onnx", "com.microsoft"):
        return False
    q, scale, zero = node.inputs[0], node.inputs[1], input_at(node, 2)
    if q is None or scale is None:
        return False
    if t.are_constant(q, scale, zero):
        return _constant(node, q, scale, zero, t)
    return _table(node, q, scale, zero, t) or _activation(node, q, scale, zero, t)


def _constant(
    node: ir.Node, q: ir.Value, scale: ir.Value, zero: ir.Value | None, t: RestoringContext
) -> bool:
    shape, scales = t.constants.shape(q), t.numbers(scale)
    zeros = None if zero is None else t.numbers(zero)
    if attribute_int(node, "block_size", 0):
        return _blocks(node, q, scale, zero, t)
    if t.constants.dtype(scale) is not ir.DataType.FLOAT:
        return False
    if scales.ndim == 1 and len(shape) > 1:
        axis = attribute_int(node, "axis", 1) % len(shape)
        column = tuple(-1 if i == axis else 1 for i in range(len(shape)))
        scales = scales.reshape(column)
        zeros = zeros if zeros is None or zeros.size == 1 else zeros.reshape(column)
    if t.constants.dtype(t.constants.root(q).leaf) is ir.DataType.INT32:  # a bias
        wide = t.numbers(q).astype(np.float32)
        held = t.emitter.constant(wide * scales, (q.name or "bias").removesuffix("_quantized"))
        t.replace(node, [_renamed(held, t)])
        return True
    found = t.weight(q, scales, zeros)
    if found is None:
        return False
    _pass_on(node, found, t)
    return True


def _blocks(
    node: ir.Node, q: ir.Value, scale: ir.Value, zero: ir.Value | None, t: RestoringContext
) -> bool:
    """Tell whether `node` dequantized blocks along an axis; their value replaces it then."""
    shape, block = t.constants.shape(q), attribute_int(node, "block_size", 0)
    if len(shape) != 2 or attribute_int(node, "output_dtype", 0):
        return False
    axis = attribute_int(node, "axis", 1) % 2
    found = typed_blocks(q, scale, zero, block, t, axis=axis)
    if found is None:
        return False
    turned = found if axis == 1 else t.emitter.transpose(found, [1, 0], f"{found.name}_transposed")
    _pass_on(node, turned, t)
    return True


def _renamed(value: ir.Value, t: RestoringContext) -> ir.Value:
    return t.emitter.op("Identity", [value], out=f"{value.name}_same")


def _pass_on(node: ir.Node, value: ir.Value, t: RestoringContext) -> None:
    """Put `value` in the place of what `node` makes, which has no other name for it."""
    out = node.outputs[0]
    if out.is_graph_output():
        value = _renamed(value, t)
        t.replace(node, [value])
        return
    out.replace_all_uses_with(value)
    t.emitter.flush_before(node)
    inputs = [v for v in node.inputs if v is not None]
    graph = node.graph
    assert graph is not None
    graph.remove(node, safe=True)
    for v in inputs:
        t.sweeper.unused(v)


def _table(
    node: ir.Node, q: ir.Value, scale: ir.Value, zero: ir.Value | None, t: RestoringContext
) -> bool:
    """Tell whether `node` dequantized what was picked from a table of one scale."""
    table, moves = trace(q)
    if not moves or not t.are_constant(table, scale, zero) or t.constants.shape(scale) not in ONE:
        return False
    w = t.weight(table, t.numbers(scale), None if zero is None else t.numbers(zero))
    if w is None:
        return False
    _pass_on(node, move(w, moves, t), t)
    return True


def _activation(
    node: ir.Node, q: ir.Value, scale: ir.Value, zero: ir.Value | None, t: RestoringContext
) -> bool:
    rows = rows_of(q, t)
    if rows is not None:
        if rows.row is not None or scale is not rows.scale or zero is not rows.zero_point:
            return False
        _pass_on(node, rows.x, t)
        return True
    static = made_by(q, "QuantizeLinear")
    if static is None or not t.are_constant(scale, zero) or static.inputs[0] is None:
        return False
    their_zero = input_at(static, 2)
    step, stated = number(scale, t), number(static.inputs[1], t)
    z = np.float32(0) if zero is None else number(zero, t)
    their_z = np.float32(0) if their_zero is None else number(their_zero, t)
    if step is None or step != stated or z is None or z != their_z:
        return False
    dtype = None if zero is None else t.constants.dtype(zero)
    if dtype not in BYTES:
        return False
    x = static.inputs[0]
    lowest, highest = (0, 255) if dtype is ir.DataType.UINT8 else (-128, 127)
    _pass_on(node, _cut(x, float(step), int(z) == lowest, highest - lowest, t), t)
    t.note(x.name, "activations per row: the file had one calibrated range")
    return True


def _cut(x: ir.Value, step: float, positive: bool, steps: int, t: RestoringContext) -> ir.Value:
    """Return `x` without its negative numbers, and those above 6, where the range has none."""
    maker = x.producer()
    if not positive or (maker is not None and maker.op_type in NOT_NEGATIVE):
        return x
    if abs(steps * step - SIX) <= step:
        bounds = [t.emitter.scalar(v, np.float32) for v in (0.0, SIX)]
        return t.emitter.op("Clip", [x, *bounds], out=f"{x.name}_cut")
    return t.emitter.op("Relu", [x], out=f"{x.name}_positive")
