"""Float weights to integers of a few bits in groups, each with a float16 scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo import _native
from octavo.core.kernels.buffers import array_of, rows_of
from octavo.core.kernels.grouped import GroupedWeight
from octavo.core.kernels.packing import Float32, WeightFormat

_LEAST = 1e-3  # of the mean importance


@dataclass(frozen=True)
class RoundedGroups:
    """A weight in groups, with the sums over all weights of `w**2` and `(w - dequantized w)**2`."""

    weight: GroupedWeight
    signal: float
    noise: float


def round_groups(
    w: Any,
    format: WeightFormat,  # noqa: A002 - as the field of GroupedWeight
    moments: Any = None,
    search: bool = True,
) -> RoundedGroups:
    """Float weights [n, k], in float32, float16 or bfloat16, as groups of `format.group` inputs.

    With `search`, scale (and zero point) of a group are those of several candidates that have the
    least squared error, each input's weighted by `moments` [k] (its mean square; None: all alike).
    Else they come from the group's range. docs/numbers.md has the definition. Raises ValueError
    for NaN or infinity (the message names the channel), other shapes and formats without groups,
    TypeError for other dtypes.
    """
    rows = rows_of(w, "w")
    if len(rows.shape) != 2:
        raise ValueError(f"w: shape {rows.shape} must be [n, k]")
    if not format.group:
        raise ValueError(f"format: {format.value} has no groups")
    if format.minimum:
        raise ValueError(f"format: {format.value} is what files hold; round to an affine one")
    n, k = rows.shape
    importance = np.ones(k, np.float32) if moments is None else _importance(moments, k)
    groups = format.groups(k)
    q = np.empty((n, k), np.uint8)
    scale = np.empty((n, groups), np.float16)
    zero = np.empty((n, groups), np.uint8) if format.affine else None
    channel_scale = np.empty(n, np.float32)
    signal, noise, bad = _native.round_groups(
        *(rows.address, rows.dtype, n, k, rows.stride, importance),
        *(format.bits, format.group, format.affine, search),
        *(q, scale.view(np.uint16), zero, channel_scale),
    )
    if bad >= 0:
        raise ValueError(f"channel {bad} along axis 0 holds NaN or infinity")
    return RoundedGroups(GroupedWeight(q, scale, zero, channel_scale, format), signal, noise)


def _importance(moments: Any, k: int) -> Float32:
    """Return `moments` as weights of about 1.

    A weight is never 0, for an input that samples left at rest may move.
    """
    values = array_of(moments, "moments", np.float32, (k,))
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("moments: holds NaN, infinity or numbers below 0; needs mean squares")
    mean = values.mean(dtype=np.float64)
    if not mean:
        return np.ones(k, np.float32)
    importance: Float32 = np.maximum(values / mean, _LEAST).astype(np.float32)
    return importance
