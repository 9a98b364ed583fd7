"""How far values of two models are apart, and whether their numbers can show it.

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

from octavo.core.masked_rows import Padding
from octavo.core.metrics import cosine_error, relative_error
from octavo.onnx.inputs import Feed
from octavo.onnx.read.map_types import as_array

Array = npt.NDArray[Any]
Arrays = list[Array]
Pair = tuple[Feed, Arrays, Arrays]
Pairs = Sequence[Pair]
"""Of each run the feed, the float model's arrays and the other one's."""

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
MASKING = 100.0
"""How many times all others a number is that a mask puts in the place of hidden ones."""
BATCH_AND_TOKENS = 2  # the first axes of what masks hide


class Uninformative(Enum):
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


@dataclass(frozen=True)
class Run:
    """The outputs of both models on one feed, and the padding in it."""

    feed: Feed
    expected: Sequence[Any]
    got: Sequence[Any]
    padding: Padding

    def pair(self, i: int, name: str, bounds: Bounds | None = None) -> Pair:
        """Output `i` of both, without padding."""
        both = tensors(self.expected[i]), tensors(self.got[i])
        return (self.feed, *seen(self.padding, name, *both, bounds))


@dataclass(frozen=True)
class Distance:
    """The distance at one value: an output, or what stands behind `output`.

    `where` says which, and is empty for the output itself; `forced` are values of which both models
    were given the float model's. `feed` contributes most to the error. `non_finite` counts numbers
    that are finite in the float model alone. `may_show` says that the output itself may show it on
    other inputs, `decides` that the value is what a decision reads. `lost` counts numbers that are
    not finite in the float model, and otherwise in the other one: they were left out.
    """

    output: str
    value: str
    error: float
    cosine: float
    feed: Feed
    where: str = ""
    forced: tuple[str, ...] = ()
    non_finite: int = 0
    may_show: bool = False
    decides: bool = False
    lost: int = 0


# What a value shows ------------------------------------------------------------------------------


# docs/notes/checking.md: "Outputs that show nothing are not compared"
def uninformative(arrays: Sequence[Array], bounds: Bounds | None = None) -> Uninformative | None:
    """Return why `arrays`, one value in several runs, show nothing; None where they do."""
    if not arrays:
        return Uninformative.NO_NUMBERS
    if not all(is_float(a) for a in arrays):
        return Uninformative.NOT_FLOAT
    if not any(a.size for a in arrays):
        return Uninformative.EMPTY
    values = np.concatenate([a[np.isfinite(a)].astype(np.float64) for a in arrays])
    if not values.size:
        return Uninformative.NOT_FINITE
    low, high = float(values.min()), float(values.max())
    if low == high and (low == 0.0 or any(a.size > 1 for a in arrays)):
        return Uninformative.CONSTANT
    if bounds is not None and _saturated(arrays, values, bounds):
        return Uninformative.SATURATED
    return None


def _saturated(arrays: Sequence[Array], values: Array, bounds: Bounds) -> bool:
    """Tell whether next to all elements lie at a bound of what made them."""
    if bounds.squash is Squash.SOFTMAX:
        largest = [a.max(axis=bounds.axis).ravel() for a in arrays if a.ndim and a.size]
        return bool(largest) and float((np.concatenate(largest) < CERTAIN).mean()) < ENOUGH
    low, high = {Squash.SIGMOID: (LITTLE, HIGH), Squash.TANH: (-HIGH, HIGH)}.get(
        bounds.squash, (float(values.min()), float(values.max()))
    )
    return float(((values > low) & (values < high)).mean()) < ENOUGH


def looks_squashed(pairs: Pairs) -> bool:
    """Tell whether an output may be a saturated sigmoid, tanh, softmax or clip.

    Only then is the output traced to what made it.
    """
    values = np.concatenate([x[np.isfinite(x)].ravel() for _, a, _ in pairs for x in a])
    low, high = float(values.min()), float(values.max())
    if low >= -1 and high <= 1:
        small = np.abs(values)
        return bool(((small > LITTLE) & (small < HIGH)).mean() < 2 * ENOUGH)
    return bool(((values > low) & (values < high)).mean() < ENOUGH)


def before(array: Array, bounds: Bounds) -> Array | None:
    """Compute a node's input from its output `array`, as far as that still tells; float64.

    The input of a softmax is centred: nobody can tell what was added to all of a row. None for
    other nodes, and where next to nothing is left: a sigmoid of 1 or a probability of 0.
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
    """Tell whether it is an array of floating-point numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def tensors(value: Any) -> Arrays:
    """Return the numbers in an output: a tensor, a sequence, or a classifier's maps, by label."""
    found = as_array(value)
    return [found] if isinstance(found, np.ndarray) else []


def seen(
    padding: Padding, name: str, a: Arrays, b: Arrays, bounds: Bounds | None = None
) -> tuple[Arrays, Arrays]:
    """Return the value `name` of both models without padding; a softmax over tokens stays whole."""
    if len(a) != 1 or len(b) != 1:
        return a, b
    if bounds is not None and bounds.squash is Squash.SOFTMAX and _is_of_tokens(bounds, a[0]):
        return a, b
    one, other = padding.seen(name, a[0], b[0])
    return [one], [other]


def _is_of_tokens(bounds: Bounds, array: Array) -> bool:
    return array.ndim > 0 and bounds.axis % array.ndim < BATCH_AND_TOKENS


# How far values are apart ------------------------------------------------------------------------


def distance(
    output: str, value: str, pairs: Pairs, where: str = "", forced: tuple[str, ...] = ()
) -> Distance:
    """Measure all runs as one; elements count where the float model's are finite."""
    expected, got, apart, bad, lost = list[Array](), list[Array](), [], 0, 0
    for _, a, b in pairs:
        one, other = _flat(a, a), _flat(b, a)
        kept = ~_masked(one, other)
        one, other = one[kept], other[kept]
        expected.append(one)
        got.append(other)
        bad += int((~np.isfinite(other)).sum())
        lost += sum(int((~np.isfinite(x) & (x != y)).sum()) for x, y in zip(a, b, strict=True))
        apart.append(float(np.square(other - one).sum()))
    # A run with NaN is the one to look at.
    feed = pairs[int(np.argmax(np.where(np.isfinite(apart), apart, np.inf)))][0]
    if bad:
        return Distance(output, value, float("inf"), 1.0, feed, where, forced, bad)
    reference, mine = np.concatenate(expected), np.concatenate(got)
    error, cosine = relative_error(reference, mine), cosine_error(reference, mine)
    return Distance(output, value, error, cosine, feed, where, forced, lost=lost)


def distance_before(
    bounds: Bounds,
    output: str,
    value: str,
    pairs: Pairs,
    where: str,
    forced: tuple[str, ...] = (),
) -> Distance | None:
    """Return the distance between a node's inputs, computed from its outputs; None if unknown."""
    found = []
    for feed, a, b in pairs:
        theirs, ours = ([before(x, bounds) for x in arrays] for arrays in (a, b))
        known = [x for x in theirs if x is not None], [x for x in ours if x is not None]
        if len(known[0]) < len(a) or len(known[1]) < len(b):
            return None
        found.append((feed, *known))
    if uninformative([x for _, a, _ in found for x in a]) is not None:
        return None
    return distance(output, value, found, where, forced)


def _masked(one: Array, other: Array) -> Array:
    """Elements that a mask set to a number far beyond all others, in both models: they would be
    all that an error is relative to."""
    masked = np.zeros(one.shape, bool)
    for extreme in {float(one.min()), float(one.max())} if one.size else ():
        there = one == extreme
        rest = one[~there]
        if there.sum() > 1 and rest.size and abs(extreme) > MASKING * float(np.abs(rest).max()):
            masked |= there & (other == extreme)
    return masked


def _flat(arrays: Arrays, where: Arrays) -> Array:
    flat = [x[np.isfinite(y)].astype(np.float64) for x, y in zip(arrays, where, strict=True)]
    return np.concatenate(flat) if flat else np.zeros(0)


def is_finite(arrays: Arrays) -> bool:
    """Tell whether all numbers are."""
    return all(bool(np.isfinite(array).all()) for array in arrays)
