"""What convolutions compute, in float64: the statement of each form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def reference_portable(
    x: npt.NDArray[Any], q: npt.NDArray[Any], scale: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """1x1 convolution as drawn, float64: x [B, C, P], q [M, C] around 0, scale [M] -> [B, M, P]."""
    x64 = np.asarray(x, np.float64)
    r = np.abs(x64).max(axis=(1, 2), keepdims=True)
    steps = np.where(r > 0, np.rint(127 * x64 / np.where(r > 0, r, 1)), 0)
    y: npt.NDArray[np.float64] = np.einsum("mc,bcp->bmp", q.astype(np.float64), steps)
    held: npt.NDArray[np.float64] = y * np.asarray(scale, np.float64)[None, :, None] * (r / 127)
    return held


def reference_native(
    x: npt.NDArray[Any],
    q: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    pads: Sequence[int] | None = None,
) -> npt.NDArray[np.float64]:
    """What the operator computes with stride 1, one group and no activation, in float64.

    x [B, C, ...], q int8 [M, C, ...], scale and bias [M] -> [B, M, ...]. Each image becomes uint8
    over a range widened to 0; `pads`, all begins and then all ends, add its zero. An image that
    holds NaN or infinity gives NaN.
    """
    x64 = np.asarray(x, np.float64)
    axes = x64.ndim - 2
    every = tuple(range(1, x64.ndim))
    with np.errstate(invalid="ignore"):
        low = np.minimum(x64.min(axis=every, keepdims=True), 0.0)
        high = np.maximum(x64.max(axis=every, keepdims=True), 0.0)
        step = (high - low) / 255.0
        step = np.where(step < 1e-30, 1.0, step)
        zero = np.clip(np.rint(-low / step), 0, 255)
        held = (np.clip(np.rint(x64 / step) + zero, 0, 255) - zero) * step
    around = pads or [0] * (2 * axes)
    held = np.pad(held, [(0, 0), (0, 0), *zip(around[:axes], around[axes:], strict=True)])
    w = q * np.asarray(scale, np.float64).reshape(-1, *[1] * (q.ndim - 1))
    spatial = tuple(range(2, x64.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(held, q.shape[2:], spatial)
    kernel_axes = tuple(range(x64.ndim, x64.ndim + axes))
    y = np.tensordot(windows, w, ((1, *kernel_axes), (1, *spatial)))
    y = np.moveaxis(y, -1, 1) + np.asarray(bias, np.float64).reshape(-1, *[1] * axes)
    finite = np.isfinite(x64).all(axis=every, keepdims=True)
    return np.where(finite, y, np.nan)
