"""Linear or Conv ─ x * sigmoid(x), Swish, QuickGelu with alpha 1  ->  the node with "silu"."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

NAME = "silu"


def reference(y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What is taken over, in float64, element by element."""
    y64 = np.asarray(y, np.float64)
    activated: npt.NDArray[np.float64] = y64 / (1.0 + np.exp(-y64))
    return activated
