"""Whether the numbers of a value can show how far two models are apart.

A sigmoid that is 1e-8 everywhere, a row of zeros or a label say little: relative errors of what is
next to nothing are noise, and those of 0.9999 are nothing. What a sigmoid and a softmax were given
can be computed from what they gave, as long as float32 still holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.onnx.maps import as_array

Array = npt.NDArray[Any]

ENOUGH = 0.01
"""The share of a value's elements that have to lie between its bounds."""
LITTLE = 1e-3
"""Below, a sigmoid's value is next to nothing: a large error relative to it means as little."""
HIGH = 0.99
"""Above, errors of a sigmoid or tanh hide."""
CERTAIN = 0.999
"""A row of a softmax whose largest probability is above shows nothing of the others."""
LEAST_SIGMOID = 1e-5
"""Below, a sigmoid tells little of what it was given: ONNX Runtime's is off by up to 3e-8."""
LEAST = 1e-37
"""The least probability whose logarithm is taken: float32 holds nothing much smaller."""


class Lack(Enum):
    """Why a value shows nothing."""

    NO_NUMBERS = "holds no tensor of numbers"
    EMPTY = "is empty"
    NOT_FLOAT = "holds no floating-point numbers"
    NOT_FINITE = "holds no finite numbers"
    CONSTANT = "holds one and the same number everywhere"
    SATURATED = "is saturated"


class Squash(Enum):
    """What bounds a value."""

    SIGMOID = "Sigmoid"
    SOFTMAX = "Softmax"
    TANH = "Tanh"
    CLIP = "Clip"


@dataclass(frozen=True)
class Bounds:
    """The `node` that bounds a value, as messages call it: its kind, and the axis of a softmax."""

    squash: Squash
    axis: int = -1
    node: str = ""


def lack(arrays: Sequence[Array], bounds: Bounds | None = None) -> Lack | None:
    """Why `arrays`, one value in several runs, show nothing; None where they do."""
    if not arrays:
        return Lack.NO_NUMBERS
    if not all(is_float(a) for a in arrays):
        return Lack.NOT_FLOAT
    if not any(a.size for a in arrays):
        return Lack.EMPTY
    known = [a[np.isfinite(a)].astype(np.float64) for a in arrays]
    values = np.concatenate(known) if known else np.zeros(0)
    if not values.size:
        return Lack.NOT_FINITE
    low, high = float(values.min()), float(values.max())
    if low == high and (low == 0.0 or any(a.size > 1 for a in arrays)):
        return Lack.CONSTANT
    if bounds is not None and _saturated(arrays, values, bounds):
        return Lack.SATURATED
    return None


def _saturated(arrays: Sequence[Array], values: Array, bounds: Bounds) -> bool:
    """Whether next to all elements lie at a bound of what made them."""
    if bounds.squash is Squash.SOFTMAX:
        largest = [a.max(axis=bounds.axis).ravel() for a in arrays if a.ndim and a.size]
        return bool(largest) and float((np.concatenate(largest) < CERTAIN).mean()) < ENOUGH
    low, high = {Squash.SIGMOID: (LITTLE, HIGH), Squash.TANH: (-HIGH, HIGH)}.get(
        bounds.squash, (float(values.min()), float(values.max()))
    )
    return float(((values > low) & (values < high)).mean()) < ENOUGH


def before(array: Array, bounds: Bounds) -> Array | None:
    """What the node was given, as far as `array`, its output, still tells; float64.

    That of a softmax is centred: nobody can tell what was added to all of a row. None for other
    nodes, and where next to nothing is left: a sigmoid of 1 or a probability of 0.
    """
    y = array.astype(np.float64)
    if bounds.squash is Squash.SIGMOID:
        known = (y > LEAST_SIGMOID) & (y < 1 - LEAST_SIGMOID)
        if float(known.mean()) < 1 - ENOUGH:
            return None
        y = np.clip(y, LEAST_SIGMOID, 1 - LEAST_SIGMOID)
        given: Array = np.log(y) - np.log1p(-y)
        return given
    if bounds.squash is Squash.SOFTMAX and y.ndim:
        if float((y > LEAST).mean()) < 1 - ENOUGH:
            return None
        logs = np.log(np.clip(y, LEAST, None))
        centred: Array = logs - logs.mean(axis=bounds.axis, keepdims=True)
        return centred
    return None


def is_float(value: Any) -> bool:
    """Whether it is an array of floating-point numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def tensors(value: Any) -> list[Array]:
    """The numbers in one output: of a tensor, a sequence, or maps (of a classifier, by label)."""
    found = as_array(value)
    return [found] if isinstance(found, np.ndarray) else []
