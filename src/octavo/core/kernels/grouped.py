"""Weights in groups along their inputs: a few bits each, a float16 scale for each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.packing import (
    Bytes,
    Float32,
    WeightFormat,
    expect_array,
    packed_bytes,
)
from octavo.core.kernels.weight_memory import weight_memory

Float16 = npt.NDArray[np.float16]
UInt8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class GroupedWeight:
    """A weight [n, k] in groups of `format.group` inputs, for group j of row i:

        w = channel_scale[i] * scale[i, j] * (q - zero[i, j])
        w = channel_scale[i] * (scale[i, j] * q + minimum[i, j])      where the format has minima

    `q` uint8 [n, k], 0 .. 2**bits - 1. `scale` float16 [n, groups], groups = ceil(k / group).
    `zero` uint8 [n, groups], of the range of `q`, where the format is affine; else None, and zero
    is 2**(bits - 1). `minimum` float16 [n, groups] of formats that have it. `channel_scale` float32
    [n] keeps float16 scales away from subnormal numbers and infinity: above 0, 1 for nearly
    all weights. Raises TypeError or ValueError, which names the field, for anything else.
    """

    q: UInt8
    scale: Float16
    zero: UInt8 | None
    channel_scale: Float32
    format: WeightFormat
    minimum: Float16 | None = None

    def __post_init__(self) -> None:
        if not self.format.group:
            raise ValueError(f"format: {self.format.value} has no groups")
        if self.format.affine != (self.zero is not None):
            raise ValueError(f"zero: goes with affine formats, and {self.format.value} is not")
        if self.format.minimum != (self.minimum is not None):
            raise ValueError(
                f"minimum: goes with formats of minima, and {self.format.value} is "
                + ("one" if self.format.minimum else "none")
            )
        if self.q.ndim != 2:
            raise ValueError(f"q: shape {self.q.shape} must be [n, k]")
        n, k = self.q.shape
        groups = self.format.groups(k)
        expect_array(self.q, "q", np.uint8, (n, k))
        expect_array(self.scale, "scale", np.float16, (n, groups))
        if self.zero is not None:
            expect_array(self.zero, "zero", np.uint8, (n, groups))
        if self.minimum is not None:
            expect_array(self.minimum, "minimum", np.float16, (n, groups))
        expect_array(self.channel_scale, "channel_scale", np.float32, (n,))
        most = 2**self.format.bits - 1
        for name, values in (("q", self.q), ("zero", self.zero)):
            if values is not None and values.size and values.max() > most:
                raise ValueError(f"{name}: holds values above {most}")

    @property
    def n(self) -> int:
        """Outputs."""
        return int(self.q.shape[0])

    @property
    def k(self) -> int:
        """Inputs."""
        return int(self.q.shape[1])

    def pack(self, into: Bytes | None = None) -> Bytes:
        """Pack what kernels read into `into` or new aligned memory, but for `channel_scale`."""
        size = packed_bytes(self.n, self.k, self.format)
        packed = weight_memory(size) if into is None else into
        expect_array(packed, "into", np.uint8, (size,))
        scale = self.scale.view(np.uint16)
        zero = self.zero if self.minimum is None else self.minimum.view(np.uint8)
        _native.pack_groups(self.q, scale, zero, packed, self.format.value)
        return packed

    @classmethod
    def unpack(
        cls, packed: Bytes, n: int, k: int, channel_scale: Float32, weight_format: WeightFormat
    ) -> GroupedWeight:
        """Build the weight from what `pack` made; `packed` may have any alignment."""
        expect_array(packed, "packed", np.uint8, (packed_bytes(n, k, weight_format),))
        groups = weight_format.groups(k)
        q, scale = np.empty((n, k), np.uint8), np.empty((n, groups), np.float16)
        zero = np.empty((n, groups), np.uint8) if weight_format.affine else None
        minimum = np.empty((n, groups), np.float16) if weight_format.minimum else None
        given = zero if minimum is None else minimum.view(np.uint8)
        _native.unpack_groups(packed, q, scale.view(np.uint16), given, weight_format.value)
        return cls(q, scale, zero, channel_scale, weight_format, minimum)

    def dequantize(self) -> Float32:
        """Return the weight, float32 [n, k]."""
        zero: Any = 2 ** (self.format.bits - 1)
        if self.minimum is not None:
            zero = 0
        elif self.zero is not None:
            zero = self._spread(self.zero)
        steps = (self.q.astype(np.int32) - zero).astype(np.float32)
        w: Float32 = self._spread(self.scale.astype(np.float32)) * steps
        if self.minimum is not None:
            w += self._spread(self.minimum.astype(np.float32))
        return w * self.channel_scale[:, None]

    def _spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Spread values of groups [n, groups] over the inputs, [n, k]."""
        return np.repeat(values, self.format.group, axis=1)[:, : self.k]
