"""Float weights to integers of a few bits in groups, each with a float16 scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.kernels.buffers import array_of, array_or_tensor
from octavo.core.kernels.grouped import GroupedWeight
from octavo.core.kernels.packing import Float32, WeightFormat

_CHUNK = 1 << 20  # weights worked on at a time
_LEVELS = np.arange(0.70, 1.101, 0.05, dtype=np.float32)  # of the plain scale


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
    """Float weights [n, k] as groups of `format.group` inputs each.

    With `search`, scale (and zero point) are those of several candidates that have the least
    squared error over the group, each input weighted by `moments` [k] (its mean square; None: all
    alike). Else they come from the group's range. Raises ValueError for NaN or infinity (the
    message names the channel), other dtypes than float32 and formats without groups.
    """
    found = array_or_tensor(w, "w")
    if str(found.dtype).removeprefix("torch.") != "float32":
        raise ValueError(f"round_groups takes float32, not {found.dtype}; convert it first")
    values = array_of(found, "w", np.float32)
    if values.ndim != 2:
        raise ValueError(f"w: shape {values.shape} must be [n, k]")
    if not format.group:
        raise ValueError(f"format: {format.value} has no groups")
    n, k = values.shape
    importance = np.ones(k, np.float32) if moments is None else _importance(moments, k)
    groups = format.groups(k)
    q = np.empty((n, k), np.uint8)
    scale = np.empty((n, groups), np.float16)
    zero = np.empty((n, groups), np.uint8) if format.affine else None
    channel_scale = np.ones(n, np.float32)
    signal = noise = 0.0
    rows = max(1, _CHUNK // max(1, k))
    for first in range(0, n, rows):
        part = slice(first, min(n, first + rows))
        v, channel_scale[part] = _scaled(values[part], format.bits, first)
        found_q, found_scale, found_zero = _round(
            _cut(v, format), _cut(importance[None], format), format, search
        )
        q[part] = found_q.reshape(len(v), -1)[:, :k]
        scale[part] = found_scale
        if zero is not None:
            zero[part] = found_zero
        weight = GroupedWeight(
            q[part], scale[part], None if zero is None else zero[part], channel_scale[part], format
        )
        signal += float(np.sum(np.square(values[part], dtype=np.float64)))
        noise += float(np.sum(np.square(values[part] - weight.dequantize(), dtype=np.float64)))
    return RoundedGroups(GroupedWeight(q, scale, zero, channel_scale, format), signal, noise)


def _importance(moments: Any, k: int) -> Float32:
    values = np.asarray(moments, np.float32)
    if values.shape != (k,) or not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"moments: must be {k} finite numbers of 0 or more, one an input")
    return values


def _scaled(w: Float32, bits: int, first: int) -> tuple[Float32, Float32]:
    """The rows over powers of two that keep float16 scales normal, and these."""
    top = np.abs(w).max(axis=1, initial=0) / np.float32(2 ** (bits - 1))
    if not np.isfinite(top).all():
        bad = first + int(np.flatnonzero(~np.isfinite(top))[0])
        raise ValueError(f"channel {bad} along axis 0 holds NaN or infinity")
    held = ((top >= 2.0**-11) & (top < 2.0**14)) | (top < 2.0**-100)
    _, exponent = np.frexp(top)
    channel = np.where(held, np.float32(1), np.ldexp(np.float32(1), exponent - 1))
    return w / channel[:, None], channel.astype(np.float32)


def _cut(v: Float32, weight_format: WeightFormat) -> Float32:
    """[n, k] to [n, groups, group]; zeros behind the last input."""
    n, k = v.shape
    groups = weight_format.groups(k)
    wide = np.zeros((n, groups * weight_format.group), np.float32)
    wide[:, :k] = v
    return wide.reshape(n, groups, weight_format.group)


def _round(
    v: Float32, h: Float32, weight_format: WeightFormat, search: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Integers, scales and zero points of [n, groups, group] weights."""
    most, centre = 2**weight_format.bits - 1, 2 ** (weight_format.bits - 1)
    lo, hi = v.min(axis=2).clip(max=0), v.max(axis=2).clip(min=0)
    if weight_format.affine:
        plain = (hi - lo) / np.float32(most)
    else:
        plain = np.maximum(hi, -lo) / np.float32(centre - 1)
    best = (
        np.full(lo.shape, np.inf, np.float32),
        np.zeros_like(v, np.uint8),
        np.ones(lo.shape, np.float16),
        np.full(lo.shape, centre, np.uint8),
    )
    for level in [np.float32(1), *(_LEVELS if search else ())]:
        scale = (plain * level).astype(np.float16)
        if not weight_format.affine:
            _offer(best, v, h, scale, np.full(lo.shape, centre), most)
            if search:  # the other sign has its 16th integer on the other side
                _offer(best, v, h, -scale, np.full(lo.shape, centre), most)
            continue
        step = np.where(scale == 0, np.float16(1), scale).astype(np.float32)
        nominal = np.round(-lo / step)
        for shift in (0, -1, 1) if search else (0,):
            _offer(best, v, h, scale, (nominal + shift).clip(0, most), most)
    return best[1:]


def _offer(best: Any, v: Any, h: Any, scale: Any, zero: Any, most: int) -> None:
    """Takes a candidate where its error is below the best one's."""
    scale = np.where(scale == 0, np.float16(1), scale)
    step = scale.astype(np.float32)[..., None]
    z = zero.astype(np.float32)[..., None]
    q = (np.round(v / step) + z).clip(0, most)
    error = (h * np.square(v - step * (q - z))).sum(axis=2)
    better = error < best[0]
    best[0][better] = error[better]
    best[1][better] = q[better].astype(np.uint8)
    best[2][better] = scale[better]
    best[3][better] = zero[better].astype(np.uint8)
