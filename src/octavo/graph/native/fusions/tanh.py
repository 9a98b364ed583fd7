"""Linear or Conv ─ Tanh  ->  the node with activation "tanh"."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

NAME = "tanh"


def reference(y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What is taken over, in float64, element by element."""
    y64 = np.asarray(y, np.float64)
    activated: npt.NDArray[np.float64] = np.tanh(y64)
    return activated
