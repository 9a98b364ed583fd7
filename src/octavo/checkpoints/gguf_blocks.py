"""Blocks of GGUF as groups: the same integers, scales and zero points, where ours can hold them.

Q4_0  float16 d, 32 nibbles               w = d (q - 8)          int4-32
Q4_1  float16 d and m, 32 nibbles         w = d q + m            int4-32-affine where -m/d is 0..15
Q5_0  float16 d, 32 times 5 bits          w = d (q - 16)         int8-32
Q8_0  float16 d, 32 int8                  w = d q                int8-32
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from octavo.core.kernels import GroupedWeight, WeightFormat

UInt8 = npt.NDArray[np.uint8]
Float16 = npt.NDArray[np.float16]

_BLOCK = 32
_HALF = 2  # bytes of a float16


def groups_of(kind: str, rows: UInt8) -> GroupedWeight | None:
    """The weight in blocks of the type that llama.cpp calls `kind`; None where no groups hold it.

    `rows` uint8 [n, bytes]. Raises ValueError where a scale is NaN or infinite.
    """
    read = _READERS.get(kind)
    return None if read is None else read(rows)


def _q4_0(rows: UInt8) -> GroupedWeight:
    blocks = _blocks(rows, _HALF + _BLOCK // 2)
    scale = _halves(blocks, 0)
    return _weight(_nibbles(blocks[..., _HALF:]), scale, None, WeightFormat.INT4_32)


def _q4_1(rows: UInt8) -> GroupedWeight | None:
    """None where a minimum is no multiple of the scale: our zero points are integers."""
    blocks = _blocks(rows, 2 * _HALF + _BLOCK // 2)
    scale, minimum = _halves(blocks, 0), _halves(blocks, _HALF)
    zero = _integer_zero(scale, minimum)
    if zero is None:
        return None
    return _weight(_nibbles(blocks[..., 2 * _HALF :]), scale, zero, WeightFormat.INT4_32_AFFINE)


def _q5_0(rows: UInt8) -> GroupedWeight:
    blocks = _blocks(rows, _HALF + 4 + _BLOCK // 2)
    low = _nibbles(blocks[..., _HALF + 4 :])
    high = np.unpackbits(blocks[..., _HALF : _HALF + 4], axis=-1, bitorder="little")
    q = low | (high.reshape(low.shape) << np.uint8(4))
    return _weight(q + np.uint8(128 - 16), _halves(blocks, 0), None, WeightFormat.INT8_32)


def _q8_0(rows: UInt8) -> GroupedWeight:
    blocks = _blocks(rows, _HALF + _BLOCK)
    q = (blocks[..., _HALF:] ^ np.uint8(128)).reshape(len(rows), -1)
    return _weight(q, _halves(blocks, 0), None, WeightFormat.INT8_32)


_READERS: Mapping[str, Callable[[UInt8], GroupedWeight | None]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q8_0": _q8_0,
}


def _blocks(rows: UInt8, size: int) -> UInt8:
    """[n, bytes] to [n, blocks, size]."""
    return rows.reshape(len(rows), -1, size)


def _halves(blocks: UInt8, at: int) -> Float16:
    """The float16 at a byte of each block, [n, blocks]."""
    found = np.ascontiguousarray(blocks[..., at : at + _HALF]).view(np.float16)[..., 0]
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0][0])
        raise ValueError(f"row {row} has a scale that is NaN or infinite")
    return np.ascontiguousarray(found)


def _nibbles(packed: UInt8) -> UInt8:
    """[n, blocks, 16] to [n, inputs]: lower halves of a block's bytes first, then upper ones."""
    n, blocks, half = packed.shape
    q = np.empty((n, blocks, 2, half), np.uint8)
    np.bitwise_and(packed, 15, out=q[:, :, 0])
    np.right_shift(packed, 4, out=q[:, :, 1])
    return q.reshape(n, -1)


def _integer_zero(scale: Float16, minimum: Float16) -> UInt8 | None:
    """The zero points with `scale * zero == -minimum` exactly, 0..15; None where one has none."""
    step, lowest = scale.astype(np.float32), -minimum.astype(np.float32)
    ratio = np.divide(lowest, step, out=np.zeros_like(step), where=step != 0)
    zero = np.clip(np.rint(ratio), 0, 15)
    return zero.astype(np.uint8) if np.array_equal(zero * step, lowest) else None


def _weight(
    q: UInt8, scale: Float16, zero: UInt8 | None, weight_format: WeightFormat
) -> GroupedWeight:
    q = np.ascontiguousarray(q)
    return GroupedWeight(q, scale, zero, np.ones(len(q), np.float32), weight_format)
