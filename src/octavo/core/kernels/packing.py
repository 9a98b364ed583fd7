"""The packed layouts of weights; that of int8 is `[ceil(N/16)][ceil(K/4)][16][4]`, zero padded.

They are the same for every instruction set, and on disk: a file is mapped and used where it lies,
if the packed bytes begin at a multiple of 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.buffers import array_of
from octavo.core.kernels.weight_memory import weight_memory

Bytes = npt.NDArray[np.uint8]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

ALIGNMENT = 64
GROUP = 128
"""Inputs that share a scale where rows carry groups."""


class WeightFormat(Enum):
    """How a packed weight holds its integers. A file that does not say holds int8.

    `int8` has one scale for each output channel. The others are `GroupedWeight`s: bits, inputs
    that share a scale, and whether they share a zero point or a minimum of their own too.
    """

    INT8 = "int8"
    INT4_32 = "int4-32"
    INT4_64 = "int4-64"
    INT4_128 = "int4-128"
    INT4_32_AFFINE = "int4-32-affine"
    INT4_64_AFFINE = "int4-64-affine"
    INT4_128_AFFINE = "int4-128-affine"
    INT4_32_MINIMUM = "int4-32-minimum"
    INT8_32 = "int8-32"
    INT8_64 = "int8-64"
    INT8_128 = "int8-128"
    INT8_32_AFFINE = "int8-32-affine"
    INT8_64_AFFINE = "int8-64-affine"
    INT8_128_AFFINE = "int8-128-affine"

    @classmethod
    def grouped(cls, bits: int, group: int, affine: bool = False) -> WeightFormat:
        """Return the format of groups of `group` inputs; ValueError where there is none such."""
        return cls.parse(f"int{bits}-{group}" + ("-affine" if affine else ""))

    @property
    def bits(self) -> int:
        """Return the bits of an integer in this format."""
        return int(self.value[3])

    @property
    def group(self) -> int:
        """Inputs that share a scale; 0 where all inputs of an output do."""
        parts = self.value.split("-")
        return int(parts[1]) if len(parts) > 1 else 0

    @property
    def affine(self) -> bool:
        """Tell whether groups have zero points of their own."""
        return self.value.endswith("-affine")

    @property
    def minimum(self) -> bool:
        """Tell whether groups have a float16 minimum, not a zero point: Q4_1 of llama.cpp."""
        return self.value.endswith("-minimum")

    def groups(self, k: int) -> int:
        """Scales along `k` inputs."""
        return max(1, -(-k // self.group)) if self.group else 1

    @classmethod
    def parse(cls, text: str) -> WeightFormat:
        """Return the format called `text`; ValueError names the known ones."""
        try:
            return cls(text)
        except ValueError:
            known = ", ".join(f.value for f in cls)
            raise ValueError(
                f"weights are in the format {text!r}, which this release of Octavo does not know "
                f"(it knows {known}); install a newer one, or quantize the model again"
            ) from None


@dataclass(frozen=True)
class PackedWeight:
    """A quantized weight [n, k] as kernels read it: `w = (q - zero_point) * scale`.

    `packed` uint8 [packed_bytes(n, k, format)], contiguous and 64-byte aligned, from `pack`,
    `GroupedWeight.pack` or mapped from a file; `scale` float32 [n] (of a weight in groups its
    `channel_scale`); `zero_point` int32 [n], each -128..127, or None where all are 0, as those of
    a weight in groups are.
    `group` tells how the *inputs* are quantized: one scale a row (0), or one a row and 128 inputs;
    of a weight in groups, one a row and as many inputs as its groups have.
    Raises TypeError or ValueError, which names the field, for anything else.
    """

    packed: Bytes
    n: int
    k: int
    scale: Float32
    zero_point: Int32 | None = None
    group: int = 0
    format: WeightFormat = WeightFormat.INT8

    def __post_init__(self) -> None:
        size = packed_bytes(self.n, self.k, self.format)
        expect_packed(self.packed, np.uint8, size)
        expect_array(self.scale, "scale", np.float32, (self.n,))
        if self.zero_point is not None:
            if self.format.group:
                raise ValueError(f"zero_point: {self.format.value} has its own, in `packed`")
            expect_array(self.zero_point, "zero_point", np.int32, (self.n,))
            if self.n and (self.zero_point.min() < -128 or self.zero_point.max() > 127):
                raise ValueError("zero_point: holds values outside -128..127")
        checked_group(self.group, self.format)

    def unpack(self) -> Int8:
        """Return the integers, int8 [n, k], of a weight with one scale for each output."""
        if self.format.group:
            raise ValueError(f"format: {self.format.value} is in groups; GroupedWeight.unpack it")
        return unpack(self.packed, self.n, self.k)


def packed_bytes(n: int, k: int, weight_format: WeightFormat = WeightFormat.INT8) -> int:
    """Bytes of a packed weight [n, k]."""
    if n < 0 or k < 0:
        raise ValueError(f"a weight [{n}, {k}] cannot be: sizes are 0 or more")
    return _native.packed_bytes(n, k, weight_format.value)


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> Bytes:
    """Allocate uint8 [nbytes], beginning at a multiple of `alignment`; not initialized."""
    room = np.empty(nbytes + alignment, np.uint8)
    first = -room.ctypes.data % alignment
    return room[first : first + nbytes]


def pack(q: Any) -> Bytes:
    """Pack int8 `q` [N, K] into new aligned memory.

    Raises TypeError for another dtype, ValueError for another rank.
    """
    integers = array_of(q, "q", np.int8)
    if integers.ndim != 2:
        raise ValueError(f"q: shape {integers.shape} must be [N, K]")
    n, k = integers.shape
    packed = weight_memory(packed_bytes(n, k))
    _native.pack(integers, packed)
    return packed


def unpack(packed: Bytes, n: int, k: int) -> Int8:
    """Return the int8 [n, k] that `packed` (any alignment) holds.

    Raises TypeError for another dtype than uint8, ValueError for another size.
    """
    expect_array(packed, "packed", np.uint8, (packed_bytes(n, k),))
    q = aligned(n * k).view(np.int8).reshape(n, k)
    _native.unpack(packed, q)
    return q


def checksum(packed: Bytes) -> int:
    """Return 64 bits of uint8 `packed`, signed: what a file says of a packed weight beside it."""
    return _native.checksum(np.ascontiguousarray(packed).reshape(-1))


def checked_group(group: int, weight_format: WeightFormat = WeightFormat.INT8) -> int:
    """Return `group`, where kernels have it: 0, or 128, or the length of the weight's groups."""
    length = weight_format.group or GROUP
    if group not in (0, length):
        raise ValueError(
            f"group: {group} must be 0 (one scale a row) or {length}, with {weight_format.value}"
        )
    return group


def expect_array(
    array: npt.NDArray[Any], name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]
) -> None:
    """Raise TypeError or ValueError, with `name`, for another dtype or shape, or for gaps."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        found = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"{name}: needs a NumPy array of {np.dtype(dtype)}, not {found}")
    if array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: shape {array.shape}, strides {array.strides}; needs contiguous {shape}"
        )


def expect_packed(packed: npt.NDArray[Any], dtype: npt.DTypeLike, size: int) -> None:
    """Raise TypeError or ValueError where `packed` is no aligned array [size] of `dtype`."""
    expect_array(packed, "packed", dtype, (size,))
    past = packed.ctypes.data % ALIGNMENT if size else 0
    if past:
        raise ValueError(
            f"packed: begins {past} bytes behind a multiple of {ALIGNMENT}; map it from such an "
            "offset, or copy it into aligned(...)"
        )
