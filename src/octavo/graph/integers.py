"""Integers of weights as target portable stores them: int8, or uint8 moved up by 128."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def moved_up(q: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """`q + 128` by its bits: no wider copy of a large weight."""
    found: npt.NDArray[np.uint8] = np.ascontiguousarray(q).view(np.uint8) ^ np.uint8(128)
    return found


def stored(
    q: npt.NDArray[np.int8], zero_point: npt.NDArray[Any], *, unsigned: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Integers and their zero points, which are int8 or, if `unsigned`, uint8."""
    if unsigned:
        return moved_up(q), (np.asarray(zero_point, np.int32) + 128).astype(np.uint8)
    return q, np.asarray(zero_point).astype(np.int8)
