"""Linear or Conv ─ FastGelu, or GELU with Tanh in any spelling  ->  the node with "gelu_tanh"."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph.native.fusions._activation import gelu_by_tanh

NAME = "gelu_tanh"


def reference(y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What is taken over, in float64, element by element."""
    y64 = np.asarray(y, np.float64)
    activated: npt.NDArray[np.float64] = gelu_by_tanh(y64)
    return activated
