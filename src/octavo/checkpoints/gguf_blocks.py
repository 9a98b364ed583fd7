"""Blocks of GGUF as groups: the same integers, scales and minima, where ours can hold them.

Q4_0  float16 d, 32 nibbles                    w = d (q - 8)           int4-32
Q4_1  float16 d and m, 32 nibbles              w = d q + m             int4-32-minimum
Q4_K  8 times 32 nibbles, 6-bit scales s, t    w = (D s) q - (E t)     int4-32-minimum, near to it
Q5_0  float16 d, 32 times 5 bits               w = d (q - 16)          int8-32
Q8_0  float16 d, 32 int8                       w = d q                 int8-32

A scale of Q4_K is a float16 times an integer of 6 bits, and here the nearest float16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from octavo.core.kernels import GroupedWeight, WeightFormat

UInt8 = npt.NDArray[np.uint8]
Float16 = npt.NDArray[np.float16]

_BLOCK = 32
_BLOCKS = 8  # of a super-block
_HALF = 2  # bytes of a float16


HELD: Mapping[str, WeightFormat] = {
    "Q4_0": WeightFormat.INT4_32,
    "Q4_1": WeightFormat.INT4_32_MINIMUM,
    "Q4_K": WeightFormat.INT4_32_MINIMUM,
    "Q5_0": WeightFormat.INT8_32,
    "Q8_0": WeightFormat.INT8_32,
}
"""The types of blocks whose integers stay, and the groups that hold them."""


def groups_of(kind: str, rows: UInt8) -> GroupedWeight | None:
    """Read blocks of llama.cpp's type `kind` as a weight in groups; None where no groups hold them.

    `rows` uint8 [n, bytes]. The integers are those of the file. Raises ValueError where a scale is
    NaN or infinite.
    """
    read = _READERS.get(kind)
    return None if read is None else read(rows)


def _q4_0(rows: UInt8) -> GroupedWeight:
    blocks = _blocks(rows, _HALF + _BLOCK // 2)
    scale = _halves(blocks, 0)
    return _weight(_nibbles(blocks[..., _HALF:]), scale, WeightFormat.INT4_32)


def _q4_1(rows: UInt8) -> GroupedWeight:
    blocks = _blocks(rows, 2 * _HALF + _BLOCK // 2)
    scale, minimum = _halves(blocks, 0), _halves(blocks, _HALF)
    q = _nibbles(blocks[..., 2 * _HALF :])
    return _weight(q, scale, WeightFormat.INT4_32_MINIMUM, minimum)


def _q4_k(rows: UInt8) -> GroupedWeight:
    """Read Q4_K blocks; a power of two per row keeps scales and minima where float16 is precise."""
    size = 2 * _HALF + 12 + _BLOCKS * _BLOCK // 2
    blocks = _blocks(rows, size)
    q = _nibbles(blocks[..., 2 * _HALF + 12 :].reshape(len(rows), -1, _BLOCK))
    of_scale, of_minimum = _six_bits(blocks[..., 2 * _HALF : 2 * _HALF + 12])
    scale = _products(_halves(blocks, 0), of_scale)
    minimum = -_products(_halves(blocks, _HALF), of_minimum)
    top = np.maximum(np.abs(scale).max(axis=1), np.abs(minimum).max(axis=1))
    _, exponent = np.frexp(top)
    channel = np.where(top > 0, np.ldexp(np.float32(1), exponent), np.float32(1))
    halves = [(values / channel[:, None]).astype(np.float16) for values in (scale, minimum)]
    return GroupedWeight(
        q, halves[0], None, channel.astype(np.float32), WeightFormat.INT4_32_MINIMUM, halves[1]
    )


def _q5_0(rows: UInt8) -> GroupedWeight:
    blocks = _blocks(rows, _HALF + 4 + _BLOCK // 2)
    low = _nibbles(blocks[..., _HALF + 4 :])
    high = np.unpackbits(blocks[..., _HALF : _HALF + 4], axis=-1, bitorder="little")
    q = low | (high.reshape(low.shape) << np.uint8(4))
    return _weight(q + np.uint8(128 - 16), _halves(blocks, 0), WeightFormat.INT8_32)


def _q8_0(rows: UInt8) -> GroupedWeight:
    blocks = _blocks(rows, _HALF + _BLOCK)
    q = (blocks[..., _HALF:] ^ np.uint8(128)).reshape(len(rows), -1)
    return _weight(q, _halves(blocks, 0), WeightFormat.INT8_32)


_READERS: Mapping[str, Callable[[UInt8], GroupedWeight | None]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q5_0": _q5_0,
    "Q8_0": _q8_0,
}


def _blocks(rows: UInt8, size: int) -> UInt8:
    """Reshape [n, bytes] to [n, blocks, size]."""
    return rows.reshape(len(rows), -1, size)


def _halves(blocks: UInt8, at: int) -> Float16:
    """Return the float16 at byte `at` of each block, [n, blocks]."""
    found = np.ascontiguousarray(blocks[..., at : at + _HALF]).view(np.float16)[..., 0]
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0][0])
        raise ValueError(f"row {row} has a scale that is NaN or infinite")
    return np.ascontiguousarray(found)


def _nibbles(packed: UInt8) -> UInt8:
    """Unpack [n, blocks, 16] to [n, inputs]: lower halves of a block's bytes, then upper ones."""
    n, blocks, half = packed.shape
    q = np.empty((n, blocks, 2, half), np.uint8)
    np.bitwise_and(packed, 15, out=q[:, :, 0])
    np.right_shift(packed, 4, out=q[:, :, 1])
    return q.reshape(n, -1)


def _six_bits(packed: UInt8) -> tuple[UInt8, UInt8]:
    """Unpack [n, blocks, 12] to 8 scales and 8 minima of a super-block, each [n, blocks, 8].

    The last 4 of each have their upper two bits where the first 4 leave room.
    """
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = (first & 63, third & 15 | first >> 2 & 48)
    minima = (second & 63, third >> 4 | second >> 2 & 48)
    return np.concatenate(scales, axis=-1), np.concatenate(minima, axis=-1)


def _products(halves: Float16, integers: UInt8) -> npt.NDArray[np.float32]:
    """Multiply a super-block's float16 by its integers, [n, groups]."""
    found = halves.astype(np.float32)[..., None] * integers.astype(np.float32)
    return found.reshape(len(found), -1)


def _weight(
    q: UInt8, scale: Float16, weight_format: WeightFormat, minimum: Float16 | None = None
) -> GroupedWeight:
    ones = np.ones(len(q), np.float32)
    return GroupedWeight(np.ascontiguousarray(q), scale, None, ones, weight_format, minimum)
