"""Integers of weights as target portable stores them: int8, or uint8 moved up by 128."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def moved_up(q: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Return `q + 128` by its bits: no wider copy of a large weight."""
    found: npt.NDArray[np.uint8] = np.ascontiguousarray(q).view(np.uint8) ^ np.uint8(128)
    return found


def one_if_equal(zero_point: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Zero points of channels as one, rank 0, where they are the same.

    For products per row: with one a channel ONNX Runtime corrects every sum by its own. On
    all-MiniLM-L6 that took 1% of the time (measured once, while developing). DequantizeLinear takes
    as many zero points as scales.
    """
    if zero_point.size and (zero_point == zero_point.flat[0]).all():
        return zero_point.flat[0:1].reshape(())
    return zero_point


def stored(
    q: npt.NDArray[np.int8], zero_point: npt.NDArray[Any], *, unsigned: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Integers and their zero points, which are int8 or, if `unsigned`, uint8."""
    if unsigned:
        return moved_up(q), (np.asarray(zero_point, np.int32) + 128).astype(np.uint8)
    return q, np.asarray(zero_point).astype(np.int8)


def as_int8(
    q: npt.NDArray[Any], zero_point: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    """Integers and zero points as int8: uint8 ones lie 128 higher."""
    if q.dtype == np.uint8:
        moved = np.ascontiguousarray(q).view(np.uint8) ^ np.uint8(128)
        return moved.view(np.int8), (np.asarray(zero_point, np.int32) - 128).astype(np.int8)
    return np.asarray(q, np.int8), np.asarray(zero_point).astype(np.int8)
