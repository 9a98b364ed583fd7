"""Rows to integers: the quantization of activations on its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo import _native
from octavo.core.kernels.buffers import rows_of
from octavo.core.kernels.packing import Bytes, Float32, Int32, checked_group


def quantize_rows(x: Any, group: int = 0) -> tuple[Bytes, Float32, Int32]:
    """Integers of `x` [..., K] with the scale and zero point of each row, or 128 inputs of it.

    Returns q uint8 [..., K], scale float32 [..., G] and zero_point int32 [..., G]; G is 1, or
    `ceil(K / 128)` with `group=128`, at least 1. `x` is `(q - zero_point) * scale`, with

        lo = min(x, 0)    hi = max(x, 0)    scale = hi/255 - lo/255 (1 below 1e-30)
        zero_point = round(-lo / scale)     q = clamp(round(x / scale) + zero_point, 0, 255)

    rounded halves to even, where a division is by `1/scale` in float32. NaN or infinity in a row
    (or group) makes its scale NaN and its integers 0. Raises TypeError for dtypes other than
    float32, float16 and bfloat16, ValueError for other groups.
    """
    rows = rows_of(x, "x")
    groups = max(1, -(-rows.columns // checked_group(group))) if group else 1
    q = np.empty((rows.rows, rows.columns), np.uint8)
    scale = np.empty((rows.rows, groups), np.float32)
    zero_point = np.empty((rows.rows, groups), np.int32)
    _native.quantize_rows(
        rows.address,
        rows.dtype,
        rows.rows,
        rows.columns,
        rows.stride,
        group,
        q,
        scale,
        zero_point,
    )
    lead = rows.shape[:-1]
    return (
        q.reshape(rows.shape),
        scale.reshape(*lead, groups),
        zero_point.reshape(*lead, groups),
    )
