"""Weights in blocks as float ones.

MatMulNBits(x, q, scale, [zero], bias)            ->  MatMul(x, W) ─ [Add(bias)]
GatherBlockQuantized(q, i, scale, [zero])         ->  Gather(W, i)
DequantizeLinear(q, scale, [zero], block_size)    ->  W      (`pairs`)

One whose blocks kernels have no groups for, or whose numbers they do not hold, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import WeightFormat
from octavo.graph.lower.blocks import IN_FLOAT, BlockIntegers, unpack_bits
from octavo.onnx.constants import Constants
from octavo.onnx.from_quantized.context import RestoringContext, WasQuantized
from octavo.onnx.operators.reader import attribute_int, input_at
from octavo.onnx.stored_blocks import StoredBlocks, group_length
from octavo.onnx.stored_weight import read_numbers, unmap
from octavo.recipe.scheme import GROUPS

BITS = (4, 8)
FOUR = (ir.DataType.INT4, ir.DataType.UINT4)
SIGNED = (ir.DataType.INT4, ir.DataType.INT8)
TYPED = (*FOUR, ir.DataType.INT8, ir.DataType.UINT8)
SUFFIXES = ("_Q4", "_Q8")
"""ONNX Runtime's quantizer adds them to the names of nodes."""
LEVEL = "activations in integers: the file's MatMulNBits had them in float"

UInt8 = npt.NDArray[np.uint8]


def restore_linear(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was a MatMulNBits that kernels can hold; a MatMul replaces it then."""
    x, q, scale = node.inputs[:3]
    if x is None or q is None or scale is None or why_left(node, t.constants):
        return False
    shape = attribute_int(node, "N", 0), attribute_int(node, "K", 0)
    held = _packed(node, q, scale, input_at(node, 3), shape, t)
    if held is None:
        return False
    e, out, name = t.emitter, node.outputs[0].name or "y", _layer_name(node)
    t.names.nodes.free(node.name)
    w = e.transpose(held, [1, 0], f"{held.name}_transposed")
    product = y = e.op("MatMul", [x, w], out=out, name=name)
    bias = input_at(node, 5)
    if bias is not None:
        y = e.op("Add", [y, bias], out=f"{out}_biased")
    if attribute_int(node, "accuracy_level", IN_FLOAT) == IN_FLOAT:
        t.note(name, LEVEL)
    t.restored[product] = WasQuantized(node.op_type, per_row=True)
    t.replace(node, [y])
    return True


def restore_table(node: ir.Node, t: RestoringContext) -> bool:
    """Tell whether `node` was a GatherBlockQuantized that kernels hold; a Gather replaces it."""
    q, indices, scale = node.inputs[:3]
    if q is None or indices is None or scale is None or why_left(node, t.constants):
        return False
    n, width = t.constants.shape(q)
    zero = input_at(node, 3)
    if t.constants.dtype(q) is ir.DataType.UINT8:
        shape = n, width * 8 // attribute_int(node, "bits", 4)
        held = _packed(node, q, scale, zero, shape, t)
    else:
        held = typed_blocks(q, scale, zero, attribute_int(node, "block_size", 128), t)
    if held is None:
        return False
    out, name = node.outputs[0].name or "rows", _layer_name(node)
    t.names.nodes.free(node.name)
    y = t.emitter.op("Gather", [held, indices], out=out, name=name, axis=0)
    t.restore(node, [y], WasQuantized(node.op_type, per_row=True))
    return True


def why_left(node: ir.Node, constants: Constants) -> str:
    """Return why a MatMulNBits or GatherBlockQuantized stays as it is, "" where it does not."""
    block = attribute_int(node, "block_size", 128)
    table = node.op_type == "GatherBlockQuantized"
    q, scale, zero = node.inputs[0 if table else 1], input_at(node, 2), input_at(node, 3)
    if q is None or not all(v is None or constants.is_constant(v) for v in (q, scale, zero)):
        return "its weight is computed while the model runs"
    bits = 4 if constants.dtype(q) in FOUR else attribute_int(node, "bits", 4)
    if constants.dtype(q) not in TYPED or bits not in BITS:
        return f"{bits} bits a weight, where kernels have {' and '.join(map(str, BITS))}"
    if zero is not None and constants.dtype(zero) not in TYPED:
        return "its zero points are no integers"
    if table:
        axes = attribute_int(node, "gather_axis", 0), attribute_int(node, "quantize_axis", 1)
        shape = constants.shape(q)
        if len(shape) != 2 or axes not in ((0, 1), (0, -1)):
            return f"a table {list(shape)} in blocks along axis {axes[1]}, picked along {axes[0]}"
        k = shape[1] * (8 // bits if constants.dtype(q) is ir.DataType.UINT8 else 1)
    else:
        k = attribute_int(node, "K", 0)
        if input_at(node, 4) is not None:
            return "its inputs are in another order (g_idx)"
        if attribute_int(node, "weight_prepacked", 0):
            return "its weight is laid out for another processor"
    if group_length(block, k) is None:
        known = ", ".join(map(str, GROUPS))
        return f"blocks of {block} inputs: kernels have groups of {known}"
    return ""


def _layer_name(node: ir.Node) -> str:
    name = node.name or node.op_type.lower()
    return name[:-3] if name.endswith(SUFFIXES) else name


def _packed(
    node: ir.Node,
    q: ir.Value,
    scale: ir.Value,
    zero: ir.Value | None,
    shape: tuple[int, int],
    t: RestoringContext,
) -> ir.Value | None:
    """Return the weight [n, k] of integers that are packed into bytes; None for other sizes."""
    n, k = shape
    bits, block = attribute_int(node, "bits", 4), attribute_int(node, "block_size", 128)
    blocks = -(-k // block)
    of_zeros = -(-blocks * bits // 8)
    sizes = ((q, n * blocks * block * bits // 8), (scale, n * blocks), (zero, n * of_zeros))
    if node.op_type == "GatherBlockQuantized":  # rows end with their last integer
        sizes = ((q, n * k * bits // 8), *sizes[1:])
    if any(v is not None and np.prod(t.constants.shape(v)) != size for v, size in sizes):
        return None

    def rows_of(value: ir.Value, count: int) -> Callable[[], UInt8]:
        read = _reader(value, t)
        return lambda: unpack_bits(read().reshape(n, -1), bits, count)

    zeros = None if zero is None else rows_of(zero, blocks)()
    parts = (q, scale, zero)
    scales = _reader(scale, t)
    return _stored(
        parts, rows_of(q, k), lambda: scales().reshape(n, blocks), zeros, shape, bits, block, t
    )


def typed_blocks(
    q: ir.Value,
    scale: ir.Value,
    zero: ir.Value | None,
    block: int,
    t: RestoringContext,
    *,
    axis: int = 1,
) -> ir.Value | None:
    """Return the weight [n, k] of integers of a type of their own, in blocks along `axis`."""
    dtype, shape, turned = t.constants.dtype(q), t.constants.shape(q), axis == 0
    if dtype not in TYPED or len(shape) != 2:
        return None
    n, k = shape[::-1] if turned else shape
    bits, blocks = 4 if dtype in FOUR else 8, -(-k // block)
    of_scales = (blocks, n) if turned else (n, blocks)
    if t.constants.shape(scale) != of_scales or group_length(block, k) is None:
        return None
    centre = 1 << (bits - 1)

    def moved(value: ir.Value) -> Callable[[], UInt8]:
        read = _reader(value, t)

        def make() -> UInt8:
            wide = (read().T if turned else read()).astype(np.int16)
            return np.ascontiguousarray(wide + centre if dtype in SIGNED else wide, np.uint8)

        return make

    # Without zero points unsigned integers count from 0.
    unstated = None if dtype in SIGNED else np.zeros((n, blocks), np.uint8)
    zeros = unstated if zero is None else moved(zero)()
    scales = _reader(scale, t)
    return _stored(
        (q, scale, zero),
        moved(q),
        lambda: scales().T if turned else scales(),
        zeros,
        (n, k),
        bits,
        block,
        t,
    )


def _stored(
    parts: tuple[ir.Value, ir.Value, ir.Value | None],
    integers: Callable[[], UInt8],
    scales: Callable[[], npt.NDArray[Any]],
    zeros: UInt8 | None,
    shape: tuple[int, int],
    bits: int,
    block: int,
    t: RestoringContext,
) -> ir.Value:
    """Return one value for all who ask for the same parts of a weight in the same blocks."""
    group = group_length(block, shape[1])
    assert group is not None
    if zeros is not None and (zeros == 1 << (bits - 1)).all():
        zeros = None

    def make() -> BlockIntegers:
        wide = np.ascontiguousarray(scales(), np.float32)
        return BlockIntegers(integers(), wide, zeros, bits, block)

    def value() -> ir.Value:
        wish = (_leaf(parts[0]).name or "weight").removesuffix("_quantized")
        name = t.names.values.new(wish)
        weight_format = WeightFormat.grouped(bits, group, zeros is not None)
        dtype = t.constants.dtype(parts[1]) or ir.DataType.FLOAT
        tensor = StoredBlocks(make, shape, weight_format, dtype=dtype, name=name)
        return t.emitter.initializer(tensor, name)

    key = tuple(None if part is None else _leaf(part) for part in parts)
    return t.once(("blocks", key, shape, bits, block), value)


def _reader(part: ir.Value, t: RestoringContext) -> Callable[[], npt.NDArray[Any]]:
    """Return what reads a constant when needed: the nodes that it follows from may be gone then."""
    tensor, shape = t.constants.tensor(_leaf(part)), t.constants.shape(part)
    if tensor is None:
        array = np.array(t.numbers(part))
        return lambda: array

    def read() -> npt.NDArray[Any]:
        array = np.array(read_numbers(tensor, part.name)).reshape(shape)
        if isinstance(tensor, ir.ExternalTensor):
            unmap(tensor)
        return array

    return read


def _leaf(part: ir.Value) -> ir.Value:
    """Return what lies behind Reshapes of a constant."""
    node = part.producer()
    while node is not None and node.op_type == "Reshape" and node.inputs[0] is not None:
        part = node.inputs[0]
        node = part.producer()
    return part
