"""Rounding that makes up for itself: what one input's weights lose, later inputs' weights take on.

The method is GPTQ's (arXiv 2210.17323): with H the mean of x x^T over samples of a layer's input,
the error of its outputs is d H d^T for a change d of an output's weights. Inputs are rounded in
their order, and each time the weights that are left move to where that error is least.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.core.group_rounding import RoundedGroups, round_groups
from octavo.core.kernels.buffers import array_of
from octavo.core.kernels.grouped import GroupedWeight
from octavo.core.kernels.packing import Float32, WeightFormat

# docs/notes/rounding.md: "Feedback is damped"
_DAMPING = 0.3  # of H's mean diagonal, added to it: samples are few and not those to come
_BLOCK = 128  # inputs whose errors wait until they reach the weights beyond the block


def round_with_feedback(w: Any, weight_format: WeightFormat, hessian: Any) -> RoundedGroups:
    """Round float32 `w` [n, k] as `round_groups` does, with error feedback by `hessian` [k, k].

    `hessian` is the mean of x x^T over samples x [k] of the layer's input, float32. A group's scale
    is searched for when its first input's turn comes. Matrices are multiplied with NumPy, whose
    bits depend on the machine. Raises what `round_groups` raises, and ValueError for a `hessian` of
    another shape or with NaN or infinity.
    """
    values = array_of(w, "w", np.float32)
    if values.ndim != 2:
        raise ValueError(f"w: shape {values.shape} must be [n, k]")
    n, k = values.shape
    moments, factor = _factored(array_of(hessian, "hessian", np.float32, (k, k)))
    found = _Groups(values, weight_format)
    left: Float32 = np.divide(values, found.channel_scale[:, None], dtype=np.float32)
    for first in range(0, k, _BLOCK):
        last = min(k, first + _BLOCK)
        errors = np.empty((n, last - first), np.float32)
        for begin in range(first, last, weight_format.group):
            end = min(last, begin + weight_format.group)
            lost = found.round(
                left[:, begin:end], moments[begin:end], factor[begin:end, begin:end], begin
            )
            errors[:, begin - first : end - first] = lost
            left[:, end:last] -= lost @ factor[begin:end, end:last]
        left[:, last:] -= errors @ factor[first:last, last:]
    weight = found.weight()
    return RoundedGroups(weight, _power(values), _power(values - weight.dequantize()))


class _Groups:
    """What is rounded so far of the weight `w` [n, k]."""

    def __init__(self, w: Float32, weight_format: WeightFormat) -> None:
        plain = round_groups(w, weight_format, search=False).weight
        self.channel_scale = plain.channel_scale
        self._plain = plain
        self._format = weight_format

    def round(self, v: Float32, moments: Float32, factor: Float32, begin: int) -> Float32:
        """Round the group of inputs from `begin` on, of weights `v` [n, inputs].

        Returns [n, inputs]: what was lost over the factor's diagonal, from input to input.
        """
        searched = round_groups(v, self._format, moments).weight
        scale = (searched.scale[:, 0] * searched.channel_scale).astype(np.float16)
        scale[scale == 0] = 1
        j = begin // self._format.group
        self._plain.scale[:, j] = scale
        zero = np.float32(2 ** (self._format.bits - 1))
        if searched.zero is not None and self._plain.zero is not None:
            self._plain.zero[:, j] = searched.zero[:, 0]
            zero = searched.zero[:, 0].astype(np.float32)
        most, step = np.float32(2**self._format.bits - 1), scale.astype(np.float32)
        inputs = np.ascontiguousarray(v.T)  # each input's weights side by side
        lost: Float32 = np.empty_like(inputs)
        for i, weights in enumerate(inputs):
            q = np.clip(np.rint(weights / step) + zero, 0, most)
            self._plain.q[:, begin + i] = q
            lost[i] = (weights - step * (q - zero)) / factor[i, i]
            inputs[i + 1 :] -= factor[i, i + 1 :, None] * lost[i]
        return lost.T  # type: ignore[no-any-return]

    def weight(self) -> GroupedWeight:
        """Return the whole weight, once each group was rounded."""
        return self._plain


def _factored(hessian: Float32) -> tuple[Float32, Float32]:
    """Return the inputs' mean squares [k], and upper U [k, k]: U^T U is the inverse of damped H."""
    if not np.isfinite(hessian).all():
        raise ValueError("hessian: holds NaN or infinity; look for it in the samples")
    h = hessian.astype(np.float64)
    diagonal = h.diagonal().copy()
    mean = diagonal.mean() if diagonal.any() else 1.0
    h[np.diag_indices_from(h)] += _DAMPING * mean
    factor = np.linalg.cholesky(np.linalg.inv(h)).T
    return diagonal.astype(np.float32), np.ascontiguousarray(factor, np.float32)


def _power(x: Float32) -> float:
    return float(np.sum(np.square(x, dtype=np.float64)))
