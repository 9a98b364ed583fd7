"""What linear layers and products of activations compute, in float64, form by form."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph.analysis.zero_points import SYMMETRIC


def reference_portable(
    x: npt.NDArray[Any],
    q: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    zero_point: npt.NDArray[Any] | int = 0,
    row_zero_point: int = SYMMETRIC,
) -> npt.NDArray[np.float64]:
    """What the per-row form computes, in float64: x [..., K], q [K, N], scale [N] -> [..., N].

    A row's range is `r = max|x|` for the zero point z = 128, else
    `r = max(max x, -min x * (255 - z) / z)`; its integers are `round(x / r * (255 - z))`. A row
    with NaN or infinity gives NaN.
    """
    x64 = np.asarray(x, np.float64)
    up = 255.0 - row_zero_point
    r = x64.max(axis=-1, keepdims=True, initial=0.0)
    if row_zero_point:
        low = x64.min(axis=-1, keepdims=True, initial=0.0)
        r = np.maximum(r, -low * (1.0 if row_zero_point == SYMMETRIC else up / row_zero_point))
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.where(r > 0, np.rint(up * x64 / r), 0.0)
        integers = q.astype(np.float64) - np.asarray(zero_point, np.float64)
        y = (steps @ integers) * np.asarray(scale, np.float64) * (r / up)
    finite = np.isfinite(x64).all(axis=-1, keepdims=True)
    return np.where(finite, y, np.nan)


def reference_native(
    x: npt.NDArray[Any],
    q: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    zero_point: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    group: int = 0,
) -> npt.NDArray[np.float64]:
    """What the operator computes before its activation, in float64.

    x [..., K], q int8 [N, K], scale, zero_point and bias [N] -> [..., N]. Each row, or each
    `group` inputs of it, becomes uint8 over a range widened to 0. A row that holds NaN or infinity
    gives NaN.
    """
    x64 = np.asarray(x, np.float64)
    w = (q.astype(np.float64) - np.asarray(zero_point, np.float64)[:, None]) * scale[:, None]
    step = group or max(1, x64.shape[-1])
    held = np.empty_like(x64)
    with np.errstate(invalid="ignore"):
        for first in range(0, x64.shape[-1], step):
            part = x64[..., first : first + step]
            low = np.minimum(part.min(axis=-1, keepdims=True), 0.0)
            high = np.maximum(part.max(axis=-1, keepdims=True), 0.0)
            width = (high - low) / 255.0
            width = np.where(width < 1e-30, 1.0, width)
            zero = np.clip(np.rint(-low / width), 0, 255)
            q_x = np.clip(np.rint(part / width) + zero, 0, 255)
            held[..., first : first + step] = (q_x - zero) * width
    y = held @ w.T + np.asarray(bias, np.float64)
    finite = np.isfinite(x64).all(axis=-1, keepdims=True)
    return np.where(finite, y, np.nan)


def reference_of_activations(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What the operator computes, in float64: a [..., M, K], b [..., K, N] -> [..., M, N].

    Each row of `a` becomes uint8 over a range widened to 0, each column of `b` int8 around 0. A
    row or column that holds NaN or infinity gives NaN.
    """
    a64, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore"):
        low = a64.min(axis=-1, keepdims=True, initial=0.0)
        width = (a64.max(axis=-1, keepdims=True, initial=0.0) - low) / 255.0
        width = np.where(width < 1e-30, 1.0, width)
        zero = np.clip(np.rint(-low / width), 0, 255)
        rows = (np.clip(np.rint(a64 / width) + zero, 0, 255) - zero) * width
        step = np.abs(b64).max(axis=-2, keepdims=True, initial=0.0) / 127.0
        step = np.where(step < 1e-30, 1.0, step)
        y = np.matmul(rows, np.clip(np.rint(b64 / step), -127, 127) * step)
    good_rows = np.isfinite(a64).all(axis=-1, keepdims=True)
    good_columns = np.isfinite(b64).all(axis=-2, keepdims=True)
    return np.where(good_rows & good_columns, y, np.nan)
