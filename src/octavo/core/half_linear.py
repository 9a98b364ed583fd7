"""Linear layers whose weights are float16 or bfloat16: `y = activation(x @ w.T + bias)`.

The arithmetic is float32, one chain of fused multiply-adds for each output in the order of the
inputs, so the bits are the same on every instruction set, for every number of threads, and whatever
the other rows are. Half the memory of a float32 layer, and its accuracy but for the weights'.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.activation import Activation
from octavo.core.kernels.buffers import FLOATS, FloatType, array_of
from octavo.core.kernels.packing import Float32, aligned, expect_packed
from octavo.core.linear import LinearLayer
from octavo.errors import did_you_mean

Bits = npt.NDArray[np.uint16]


class HalfLinear(LinearLayer):
    """One layer: weights [n, k] of 16 bits, bias float32 [n] or None, activation.

    Made by `from_float`, or around weights that are packed already: `packed` uint16, contiguous and
    64-byte aligned, blocks `[ceil(n/16)][k][16]` of `dtype`'s bits, zero padded; they are referred
    to, not copied. Raises TypeError or ValueError, which name the argument.
    """

    __slots__ = ("dtype", "packed")

    def __init__(
        self,
        packed: Bits,
        n: int,
        k: int,
        dtype: str = "float16",
        bias: Float32 | None = None,
        activation: str | Activation = "none",
    ) -> None:
        kind = _half(dtype)
        expect_packed(packed, np.uint16, half_packed_size(n, k))
        self.packed, self.n, self.k, self.dtype = packed, n, k, dtype
        self.bias = None if bias is None else array_of(bias, "bias", np.float32, (n,))
        self.activation = Activation.parse(activation)
        self._native = _native.HalfLinear(packed, kind, n, k, self.bias, self.activation.code)
        self.run = self._native.run

    @classmethod
    def from_float(
        cls,
        w: Any,
        bias: Any = None,
        dtype: str = "float16",
        activation: str | Activation = "none",
    ) -> HalfLinear:
        """Round float weights `w` [N, K] to `dtype`, "float16" or "bfloat16", and pack them.

        `bias` [N] or None stays float32. Raises TypeError for dtypes other than float32, float16
        and bfloat16, ValueError for shapes, NaN and infinity in `w`, values beyond what `dtype`
        holds (65504 for float16), and unknown dtypes and activations.
        """
        kind = _half(dtype)
        values = array_of(w, "w", np.float32)
        if values.ndim != 2:
            raise ValueError(f"w: needs shape [N, K], not {values.shape}")
        bits = np.empty(values.size, np.uint16)
        _native.narrow(kind, values.reshape(-1), bits)
        _check_finite(values, bits.reshape(values.shape), kind)
        n, k = values.shape
        packed = aligned(2 * _native.half_packed_size(n, k)).view(np.uint16)
        _native.half_pack(bits.reshape(n, k), packed)
        return cls(packed, n, k, dtype, bias, activation)

    def weights(self) -> Float32:
        """Return what the layer multiplies by, float32 [n, k]."""
        bits = np.empty((self.n, self.k), np.uint16)
        _native.half_unpack(self.packed, bits)
        values = np.empty(bits.size, np.float32)
        _native.widen(FLOATS[self.dtype], bits.reshape(-1), values)
        return values.reshape(bits.shape)

    def __repr__(self) -> str:
        return (
            f"HalfLinear({self.k} -> {self.n}, {self.dtype}, bias={self.bias is not None}, "
            f"activation={self.activation.value})"
        )


def half_packed_size(n: int, k: int) -> int:
    """Numbers of 16 bits of a packed weight [n, k]."""
    if n < 0 or k < 0:
        raise ValueError(f"a weight [{n}, {k}] cannot be: sizes are 0 or more")
    return _native.half_packed_size(n, k)


def _half(dtype: str) -> FloatType:
    kind = FLOATS.get(dtype)
    if kind is None or kind is FloatType.FLOAT32:
        known = did_you_mean(str(dtype), ["float16", "bfloat16"])
        raise ValueError(f"dtype: {dtype!r} is not a type of 16 bits.{known}")
    return kind


def _check_finite(values: Float32, bits: Bits, kind: FloatType) -> None:
    """Raise ValueError for the first of `values` that rounding to `bits` made NaN or infinity."""
    exponent = 0x7C00 if kind is FloatType.FLOAT16 else 0x7F80
    bad = np.argwhere((bits & exponent) == exponent)
    if not len(bad):
        return
    n, k = bad[0]
    value = values[n, k]
    if not np.isfinite(value):
        raise ValueError(f"w: holds NaN or infinity, the first at [{n}, {k}]")
    advice = "; take bfloat16" if kind is FloatType.FLOAT16 else ""
    raise ValueError(
        f"w: {len(bad)} values are beyond {kind.name.lower()}, the first {value!s} at "
        f"[{n}, {k}]{advice}"
    )
