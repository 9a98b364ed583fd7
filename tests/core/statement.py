"""What the kernels compute, stated plainly in NumPy: docs/numbers.md.

Quantization of rows is a sequence of float32 operations, so it is stated in float32 and has to hold
bit for bit. Everything behind it is stated exactly (integers) and in float64, with the error that
the roundings of float32 may add to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erf, expit

EPS = 2.0**-24
"""The greatest relative error of one rounding to float32."""
TINY = 2.0**-149
"""The least float32 above 0, which bounds the error of a rounding among subnormal numbers."""
ACTIVATION_ERROR = 4e-7
"""The error that activations may have: absolute, and relative where the value exceeds 1."""

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * expit(x),
    "tanh": np.tanh,
    "sigmoid": expit,
}
STEEPEST = 1.13
"""No activation has a steeper slope than GELU's at x = 1.4."""


def sections(k: int, group: int) -> list[slice]:
    """The inputs that share a scale."""
    return (
        [slice(i, min(i + group, k)) for i in range(0, k, group)] if group and k else [slice(0, k)]
    )


def quantize_rows(x: np.ndarray, group: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q uint8 [M, K], scale float32 [M, G], zero point int32 [M, G] of float32 `x` [M, K]."""
    parts = [_quantize_section(x[:, part]) for part in sections(x.shape[1], group)]
    q, scale, zero = zip(*parts, strict=True)
    return np.concatenate(q, axis=1), np.stack(scale, axis=1), np.stack(zero, axis=1)


def _quantize_section(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    f = np.float32
    finite = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, f(0))
    lo, hi = x.min(axis=1, initial=f(0)), x.max(axis=1, initial=f(0))
    scale = hi / f(255) - lo / f(255)
    scale = np.where(scale < f(1e-30), f(1), scale)
    inverse = f(1) / scale
    zero = np.clip(np.rint(-lo * inverse), 0, 255).astype(np.int32)
    with np.errstate(over="ignore"):
        q = np.clip(np.rint(x * inverse[:, None]).astype(np.int64) + zero[:, None], 0, 255)
    q, zero = np.where(finite[:, None], q, 0), np.where(finite, zero, 0)
    return q.astype(np.uint8), np.where(finite, scale, f(np.nan)), zero.astype(np.int32)


@dataclass(frozen=True)
class Layer:
    """A linear layer as numbers: `w = (q - zero) * scale`, q int8 [N, K]."""

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None = None
    bias: np.ndarray | None = None
    group: int = 0
    activation: str = "none"

    def sums(self, q: np.ndarray, zero_point: np.ndarray) -> list[np.ndarray]:
        w = self.q.astype(np.int64) - (0 if self.zero is None else self.zero[:, None])
        found = []
        for g, part in enumerate(sections(q.shape[1], self.group)):
            a = q[:, part].astype(np.int64) - zero_point[:, g, None]
            # float64 holds every integer here: 255 * 255 * 200,000 < 2**53.
            found.append(a.astype(np.float64) @ w[:, part].T.astype(np.float64))
        return found

    def __call__(
        self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, residual: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The outputs, float64 [M, N], and how far float32 arithmetic may be from each."""
        sums = self.sums(q, zero_point)
        s = scale.astype(np.float64)
        terms = [t * s[:, g, None] for g, t in enumerate(sums)]
        columns = self.scale.astype(np.float64)
        # Each sum is rounded to float32, multiplied by a scale, and added: 3 roundings a section.
        size = sum(np.abs(t) for t in terms) * columns
        error = (2 * len(terms) + 1) * EPS * size + TINY
        total = 0.0
        for term in terms:  # in ascending order, each sum rounded to float32
            total = _float32_range(total + term)
        y = total * columns + (0.0 if self.bias is None else self.bias.astype(np.float64))
        error = error + EPS * np.abs(y)
        y = ACTIVATIONS[self.activation](y)
        if self.activation != "none":
            error = STEEPEST * error + ACTIVATION_ERROR * np.maximum(1, np.abs(y))
        if residual is not None:
            y = y + residual.astype(np.float64)
            error = error + EPS * np.abs(y)
        return y, error * 1.01 + TINY  # products of roundings


def _float32_range(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) > np.finfo(np.float32).max, np.copysign(np.inf, x), x)


def assert_states(y: np.ndarray, expected: tuple[np.ndarray, np.ndarray]) -> None:
    """`y` float32 lies within the error of `expected`; the same where that is not finite."""
    want, error = expected
    finite = np.isfinite(want)
    assert np.array_equal(y[~finite], want[~finite], equal_nan=True)
    distance = np.abs(y[finite].astype(np.float64) - want[finite])
    assert np.all(distance <= error[finite]), float((distance / error[finite]).max())


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    """The same bits, signs of zeros included; NaN is NaN, whatever its payload."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if a.dtype.kind != "f" and a.dtype.name != "bfloat16":
        assert np.array_equal(a, b)
        return
    nan = np.isnan(a)
    assert np.array_equal(nan, np.isnan(b))
    kind = np.dtype(f"i{a.dtype.itemsize}")
    same = (np.ascontiguousarray(a).view(kind) == np.ascontiguousarray(b).view(kind)) | nan
    assert same.all(), (
        f"{(~same).sum()} of {same.size} differ, the first at {np.argwhere(~same)[0]}"
    )
