"""Linear layers whose weights are float16 or bfloat16: `y = activation(x @ w.T + bias)`.

The arithmetic is float32, one chain of fused multiply-adds for each output in the order of the
inputs, so the bits are the same on every instruction set, for every number of threads, and whatever
the other rows are. Half the memory of a float32 layer, and its accuracy but for the weights'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.core.kernels.activation import Activation
from octavo.core.kernels.buffers import (
    FLOATS,
    FloatType,
    array_of,
    new_like,
    output_apart,
    residual_rows,
    rows_of,
)
from octavo.core.kernels.machine import checked_threads
from octavo.core.kernels.packing import ALIGNMENT, Float32, aligned
from octavo.errors import did_you_mean

Bits = npt.NDArray[np.uint16]


class HalfLinear:
    """One layer: weights [n, k] of 16 bits, bias float32 [n] or None, activation.

    Made by `from_float`, or around weights that are packed already: `packed` uint16, contiguous and
    64-byte aligned, blocks `[ceil(n/16)][k][16]` of `dtype`'s bits, zero padded; they are referred
    to, not copied. Raises TypeError or ValueError, which name the argument. Nothing changes a layer
    afterwards, and any number of threads may call it at once.
    """

    __slots__ = ("_native", "activation", "bias", "dtype", "k", "n", "packed", "run")

    run: Callable[..., None]
    """The layer over addresses, as `octavo.core.linear.Linear.run`, with the same arguments."""

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
        _check_packed(packed, n, k)
        self.packed = packed
        self.n = n
        self.k = k
        self.dtype = dtype
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
        """Rounds float weights `w` [N, K] to `dtype`, "float16" or "bfloat16", and packs them.

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
        """What the layer multiplies by, float32 [n, k]."""
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

    def __call__(self, x: Any, residual: Any = None, out: Any = None, threads: int = 0) -> Any:
        """The layer's outputs [..., N] for `x` [..., K], in its dtype and kind of array.

        `x` is float32, float16 or bfloat16; `residual` [..., N] of its dtype is added last. `out`
        is written and returned where it is given: it may be `residual`, but has nothing in common
        with `x`. `threads` 0 means `num_threads()`. Raises TypeError or
        ValueError, which name the argument, before anything is written.
        """
        checked_threads(threads)
        rows = rows_of(x, "x", self.k)
        shape = (*rows.shape[:-1], self.n)
        if out is None:
            out = new_like(x, shape, rows.dtype)
        to = output_apart(out, "out", shape, rows)
        add = residual_rows(residual, shape, to)
        self.run(
            rows.address,
            rows.rows,
            rows.stride,
            to.address,
            to.stride,
            rows.dtype,
            add.address,
            add.stride,
            threads,
        )
        return out


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


def _check_packed(packed: Bits, n: int, k: int) -> None:
    size = half_packed_size(n, k)
    if not isinstance(packed, np.ndarray) or packed.dtype != np.uint16:
        found = getattr(packed, "dtype", type(packed).__name__)
        raise TypeError(f"packed: needs a NumPy array of uint16, not {found}")
    if packed.shape != (size,) or not packed.flags.c_contiguous:
        raise ValueError(
            f"packed: shape {packed.shape}, strides {packed.strides}; needs contiguous ({size},)"
        )
    if size and packed.ctypes.data % ALIGNMENT:
        raise ValueError(
            f"packed: begins {packed.ctypes.data % ALIGNMENT} bytes behind a multiple of "
            f"{ALIGNMENT}; map it from such an offset, or copy it into aligned(...)"
        )


def _check_finite(values: Float32, bits: Bits, kind: FloatType) -> None:
    """`bits` are `values` rounded; names the first that has become NaN or infinity."""
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
