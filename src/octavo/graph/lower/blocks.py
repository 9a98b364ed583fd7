"""Weights in blocks along their inputs as ONNX Runtime's operators hold them.

    Linear(x, W)     ->  MatMulNBits(x, q, scale, [zero])
                         MatMul(x, DequantizeLinear(q, scale, [zero]))          for other runtimes
    Embedding(i, W)  ->  GatherBlockQuantized(q, i, scale, [zero])

MatMulNBits and GatherBlockQuantized read one tensor `q` of packed integers, the second behind a
Reshape. Its blocks are whole: integers behind the last input stand for zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.group_rounding import round_groups
from octavo.core.kernels import GroupedWeight, WeightFormat
from octavo.graph.emit.emitter import Emitter
from octavo.ir import MS

UInt8 = npt.NDArray[np.uint8]

FIRST_WITH_BLOCKS = 21
"""Opset of DequantizeLinear over blocks, and of types of 4 bits."""
IN_INTEGERS, IN_FLOAT = 4, 0
"""Accuracy levels of MatMulNBits: activations in integers, in blocks as the weight's, or float."""


@dataclass(frozen=True, eq=False)
class BlockIntegers:
    """A weight [n, k], `scale * (q - zero)` in each block: `q` uint8 [n, k], 0 .. 2**bits - 1.

    `scale` float32 [n, blocks], blocks = ceil(k / block). `zero` uint8 [n, blocks] of the range of
    `q`, or None where it is 2**(bits - 1).
    """

    q: UInt8
    scale: npt.NDArray[np.float32]
    zero: UInt8 | None
    bits: int
    block: int

    @classmethod
    def of(cls, weight: GroupedWeight) -> BlockIntegers:
        """Convert `weight`; its scales, powers of two times float16, are exact in float32.

        Stock operators have no minima: a weight with minima is rounded to 8 bits.
        """
        if weight.format.minimum:
            held = WeightFormat.grouped(8, weight.format.group)
            weight = round_groups(weight.dequantize(), held).weight
        scale = weight.scale.astype(np.float32) * weight.channel_scale[:, None]
        return cls(weight.q, scale, weight.zero, weight.format.bits, weight.format.group)

    @property
    def centre(self) -> int:
        """The zero point that is not stored."""
        return 1 << (self.bits - 1)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Return the weight, float32 [n, k]."""
        k = self.q.shape[1]
        w = self.q.astype(np.float32)
        if self.zero is None:
            w -= np.float32(self.centre)
        else:
            w -= np.repeat(self.zero, self.block, axis=1)[:, :k]
        w *= np.repeat(self.scale, self.block, axis=1)[:, :k]
        return w

    def packed(self) -> UInt8:
        """uint8 [n, blocks, block * bits / 8], lower bits first."""
        n, k = self.q.shape
        blocks = self.scale.shape[1]
        whole = self.q
        if k != blocks * self.block:
            whole = np.full((n, blocks * self.block), self.centre, np.uint8)
            whole[:, :k] = self.q
        return pack_bits(whole, self.bits).reshape(n, blocks, self.block * self.bits // 8)


def pack_bits(values: UInt8, bits: int) -> UInt8:
    """Integers of 4 or 8 bits as bytes along the last axis, the first in the lower bits."""
    if bits == 8:
        return np.ascontiguousarray(values)
    if values.shape[-1] % 2:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 1)])
    return np.ascontiguousarray(values[..., ::2] | values[..., 1::2] << 4)


def unpack_bits(packed: UInt8, bits: int, count: int) -> UInt8:
    """Invert `pack_bits`: return the first `count` integers along the last axis."""
    if bits == 8:
        return np.ascontiguousarray(packed[..., :count])
    wide = np.stack([packed & 15, packed >> 4], axis=-1)
    return np.ascontiguousarray(wide.reshape(*packed.shape[:-1], -1)[..., :count])


@dataclass(frozen=True)
class BlockWeightValues:
    """A weight [outputs, inputs] in blocks in the graph.

    `q` uint8 [outputs, blocks, bytes], `scale` float32 [outputs * blocks], `zero` uint8 [outputs *
    bytes of a row's] or None where zero points are 2**(bits - 1). Of a table that only lookups read
    the parts of a row lie along one axis: [outputs, ...].
    """

    q: ir.Value
    scale: ir.Value
    zero: ir.Value | None
    inputs: int
    outputs: int
    block: int
    bits: int

    @property
    def blocks(self) -> int:
        """Return the number of blocks of one output."""
        return -(-self.inputs // self.block)


Hold = Callable[[npt.NDArray[Any], str], ir.Value]
"""Stores an array as the part of a weight of that name."""


class BlockForm(Enum):
    """Which operators read a weight in blocks."""

    MATRIX = "MatMulNBits, and lookups beside it"
    TABLE = "GatherBlockQuantized alone"
    TYPED = "DequantizeLinear"

    def hold(self, w: BlockIntegers, hold: Hold) -> tuple[BlockWeightValues, int]:
        """Hold `w` in the graph; return its values and the bytes that they take."""
        if self is BlockForm.TYPED:
            return _hold_typed(w, hold)
        return _hold_packed(w, hold, is_table=self is BlockForm.TABLE)


def _hold_packed(w: BlockIntegers, hold: Hold, *, is_table: bool) -> tuple[BlockWeightValues, int]:
    n, k = w.q.shape
    arrays: dict[str, npt.NDArray[Any]] = {"quantized": w.packed(), "scale": w.scale}
    if w.zero is not None:
        arrays["zero_point"] = pack_bits(w.zero, w.bits)
    if is_table:
        arrays["quantized"] = arrays["quantized"].reshape(n, -1)
    else:  # the shape of older files of ONNX Runtime's quantizer: every release takes it
        arrays |= {name: a.reshape(-1) for name, a in arrays.items() if name != "quantized"}
    values = {name: hold(array, name) for name, array in arrays.items()}
    zero = values.get("zero_point")
    held = BlockWeightValues(values["quantized"], values["scale"], zero, k, n, w.block, w.bits)
    return held, sum(array.nbytes for array in arrays.values())


def _hold_typed(w: BlockIntegers, hold: Hold) -> tuple[BlockWeightValues, int]:
    """Hold `w` as DequantizeLinear reads it; return its values and bytes.

    Integers are [inputs, outputs], unsigned where there are zero points, else signed; scale and
    zero point are [blocks, outputs].
    """
    n, k = w.q.shape
    signed = w.zero is None
    q = w.q.view(np.int8) - np.int8(w.centre) if signed and w.bits < 8 else w.q
    if signed and w.bits == 8:
        q = (w.q ^ np.uint8(w.centre)).view(np.int8)
    values = {
        "quantized": hold(_typed(q.T, w.bits, signed=signed), "quantized"),
        "scale": hold(np.ascontiguousarray(w.scale.T), "scale"),
    }
    if w.zero is not None:
        values["zero_point"] = hold(_typed(w.zero.T, w.bits, signed=False), "zero_point")
    held = BlockWeightValues(
        values["quantized"], values["scale"], values.get("zero_point"), k, n, w.block, w.bits
    )
    stored = (v.const_value for v in values.values())
    return held, sum(tensor.nbytes for tensor in stored if tensor is not None)


TYPES = {
    (4, True): ir.DataType.INT4,
    (4, False): ir.DataType.UINT4,
    (8, True): ir.DataType.INT8,
    (8, False): ir.DataType.UINT8,
}
"""By bits, and whether integers are signed."""


def _typed(values: npt.NDArray[Any], bits: int, *, signed: bool) -> npt.NDArray[Any]:
    return np.ascontiguousarray(values).astype(TYPES[bits, signed].numpy())


def linear_block(
    e: Emitter,
    x: ir.Value,
    w: BlockWeightValues,
    *,
    name: str,
    out: str,
    accuracy_level: int = IN_INTEGERS,
) -> ir.Value:
    """MatMulNBits."""
    return e.op(
        "MatMulNBits",
        [x, w.q, w.scale, *([] if w.zero is None else [w.zero])],
        out=out,
        name=name,
        domain=MS,
        K=w.inputs,
        N=w.outputs,
        bits=w.bits,
        block_size=w.block,
        accuracy_level=accuracy_level,
    )


def dequantized_blocks(e: Emitter, w: BlockWeightValues, *, out: str) -> ir.Value:
    """Build the matrix float32 [inputs, outputs] of `BlockForm.TYPED` by DequantizeLinear.

    ONNX Runtime makes a MatMulNBits of the node and the product that reads it.
    """
    inputs = [w.q, w.scale, *([] if w.zero is None else [w.zero])]
    return e.op("DequantizeLinear", inputs, out=out, axis=0, block_size=w.block)


# docs/notes/onnxruntime.md: "Tables in blocks"
def lookup_blocks(
    e: Emitter, w: BlockWeightValues, indices: ir.Value, *, name: str, out: str
) -> ir.Value:
    """Rows of a table in blocks, float32 [..., inputs], by GatherBlockQuantized."""
    parts = [w.q, w.scale, *([] if w.zero is None else [w.zero])]
    table, scale, *zero = (_by_rows(e, part, w.outputs) for part in parts)
    whole = w.inputs == w.blocks * w.block
    rows = e.op(
        "GatherBlockQuantized",
        [table, indices, scale, *zero],
        out=out if whole else f"{out}_padded",
        name=name,
        domain=MS,
        bits=w.bits,
        block_size=w.block,
        gather_axis=0,
        quantize_axis=1,
    )
    if whole:
        return rows
    return e.op("Slice", [rows, *(e.vector([i]) for i in (0, w.inputs, -1))], out=out)


def _by_rows(e: Emitter, part: ir.Value, rows: int) -> ir.Value:
    """Reshape `part` [rows, ...] to two axes."""
    if part.shape is not None and len(part.shape) == 2:
        return part
    return e.op("Reshape", [part, e.vector([rows, -1])], out=f"{part.name}_rows")
