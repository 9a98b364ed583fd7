"""Linear or Conv ─ Sigmoid  ->  the node with activation "sigmoid"."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

NAME = "sigmoid"


def reference(y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What is taken over, in float64, element by element."""
    y64 = np.asarray(y, np.float64)
    activated: npt.NDArray[np.float64] = 1.0 / (1.0 + np.exp(-y64))
    return activated
