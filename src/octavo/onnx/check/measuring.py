"""How far values of two models are apart, and what a comparison found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.core.metrics import cosine_error, relative_error
from octavo.onnx.check.information import ENOUGH, HIGH, LITTLE, Array, Bounds, before, lack
from octavo.onnx.inputs import Feed

Arrays = list[Array]
Pairs = Sequence[tuple[Feed, Arrays, Arrays]]
"""Of each run the feed, the float model's arrays and the other one's."""
MOST_NAMED = 2  # decisions in a sentence
MASKING = 100.0
"""How many times all others a number is that a mask puts in the place of hidden ones."""


@dataclass(frozen=True)
class Run:
    """The outputs of both models on one feed."""

    feed: Feed
    expected: Sequence[Any]
    got: Sequence[Any]


@dataclass(frozen=True)
class Measured:
    """The distance at one value: an output, or what stands behind `output`.

    `where` says which, and is empty for the output itself; `forced` are values of which both models
    were given the float model's. `feed` contributes most to the error. `non_finite` counts numbers
    that are finite in the float model alone. `may_show` says that the output itself may show it on
    other inputs, `decides` that the value is what a decision reads.
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


@dataclass(frozen=True)
class Misfit:
    """An output whose shapes differ, and nothing that could be given tells why."""

    output: str
    expected: tuple[int, ...]
    got: tuple[int, ...]


@dataclass(frozen=True)
class Judgement:
    """What runs showed. `unresolved` are sentences about outputs that nothing could be said of."""

    measured: tuple[Measured, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    unresolved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> Measured | None:
        """The largest error."""
        return max(self.measured, key=lambda m: m.error, default=None)

    @property
    def said(self) -> str:
        """Where the models were compared, and what showed nothing, in a line."""
        decided = [m.where for m in self.measured if m.decides]
        where = dict.fromkeys(m.where for m in self.measured if m.where and not m.decides)
        if len(decided) > MOST_NAMED:
            decided = [f"before {len(decided)} nodes that decide what follows"]
        return "; ".join((*dict.fromkeys(decided), *where, *self.unresolved))

    @property
    def is_done(self) -> bool:
        """Whether other inputs would show no more: a difference was seen, as far as can be."""
        worst = self.worst
        if worst is None or not worst.error or self.unresolved:
            return False
        return not any(m.may_show for m in self.measured)

    @property
    def is_whole(self) -> bool:
        """Whether all outputs were compared themselves."""
        return not self.unresolved and all(not m.where for m in self.measured)


def inverted(
    pairs: Pairs,
    bounds: Bounds,
    output: str,
    value: str,
    where: str,
    forced: tuple[str, ...] = (),
) -> Measured | None:
    """The distance of what a node was given, computed from what it gave."""
    found = []
    for feed, a, b in pairs:
        theirs, ours = ([before(x, bounds) for x in arrays] for arrays in (a, b))
        if any(x is None for x in (*theirs, *ours)):
            return None
        found.append(
            (feed, [x for x in theirs if x is not None], [x for x in ours if x is not None])
        )
    if lack([x for _, a, _ in found for x in a]) is not None:
        return None
    return measured(output, value, found, where, forced)


def measured(
    output: str,
    value: str,
    pairs: Pairs,
    where: str = "",
    forced: tuple[str, ...] = (),
) -> Measured:
    """All runs as one; elements count where the float model's are finite."""
    expected, got, apart, bad = [], [], [], 0
    for _, a, b in pairs:
        one, other = _flat(a, a), _flat(b, a)
        told = ~_masked(one, other)
        one, other = one[told], other[told]
        expected.append(one)
        got.append(other)
        bad += int((~np.isfinite(other)).sum())
        apart.append(float(np.square(other - one).sum()))
    reference, mine = np.concatenate(expected), np.concatenate(got)
    # A run with NaN is the one to look at.
    feed = pairs[int(np.argmax(np.where(np.isfinite(apart), apart, np.inf)))][0]
    if bad:
        return Measured(output, value, float("inf"), 1.0, feed, where, forced, bad)
    error, cosine = relative_error(reference, mine), cosine_error(reference, mine)
    return Measured(output, value, error, cosine, feed, where, forced)


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


def is_finite(arrays: Arrays) -> bool:
    """Whether all numbers are."""
    return all(bool(np.isfinite(array).all()) for array in arrays)


def _flat(arrays: Arrays, where: Arrays) -> Array:
    parts = [x[np.isfinite(y)].astype(np.float64) for x, y in zip(arrays, where, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0)


def looks_squashed(pairs: Pairs) -> bool:
    """Whether an output may be a saturated sigmoid, tanh, softmax or clip: only then is it asked
    what made it."""
    values = np.concatenate([x[np.isfinite(x)].ravel() for _, a, _ in pairs for x in a])
    low, high = float(values.min()), float(values.max())
    if low >= -1 and high <= 1:
        small = np.abs(values)
        return bool(((small > LITTLE) & (small < HIGH)).mean() < 2 * ENOUGH)
    return bool(((values > low) & (values < high)).mean() < ENOUGH)
