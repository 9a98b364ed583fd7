"""How far two models are apart on some inputs, wherever that can be seen.

An output that shows it is compared itself. One that does not (`information`), that has another
shape in each model, or that decisions and noise drive apart is compared where it can be (`points`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from octavo.core.metrics import cosine_error, relative_error
from octavo.errors import OctavoError
from octavo.onnx.check.information import (
    ENOUGH,
    HIGH,
    LITTLE,
    Array,
    Bounds,
    Lack,
    before,
    is_float,
    lack,
    tensors,
)
from octavo.onnx.check.lens import Lens
from octavo.onnx.check.points import Decision
from octavo.onnx.inputs import Feed

Arrays = list[Array]
MOST_NAMED = 2  # decisions in a sentence
_NO_FLOATS = (Lack.NO_NUMBERS, Lack.EMPTY, Lack.NOT_FLOAT, Lack.NOT_FINITE)
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


@dataclass
class _Trouble:
    """An output that its own numbers do not tell enough of."""

    output: str
    lack: Lack | None = None
    measured: Measured | None = None
    misfit: Misfit | None = None


class Judge:
    """Compares the outputs with these `names`; looks into the models through `lens`."""

    def __init__(
        self, names: Sequence[str], lens: Lens, again: Callable[[Feed], Sequence[Any]]
    ) -> None:
        """`again` runs the float model once more."""
        self._names, self._lens, self._again = list(names), lens, again

    def judge(self, runs: Sequence[Run], max_error: float | None) -> Judgement:
        """With `max_error=None` nothing but the outputs is looked at, and those whose shapes differ
        are left out."""
        measured, troubles = list[Measured](), list[_Trouble]()
        for i, name in enumerate(self._names):
            pairs = [(run.feed, tensors(run.expected[i]), tensors(run.got[i])) for run in runs]
            found = self._plain(name, pairs, max_error)
            if isinstance(found, Measured):
                measured.append(found)
            elif found is not None:
                troubles.append(found)
        if max_error is None:
            return Judgement(tuple(measured), unresolved=tuple(map(_sentence, troubles)))
        troubles = [t for t in troubles if not self._says_nothing_more(t, measured)]
        by_chance = [t for t in troubles if self._is_drawn(t, runs, max_error)]
        troubles = [t for t in troubles if t not in by_chance]
        if not troubles:
            return Judgement(tuple(measured), unresolved=tuple(map(_by_chance, by_chance)))
        judged = self._look(runs, measured, troubles, max_error)
        more = tuple(map(_by_chance, by_chance))
        return replace(judged, unresolved=(*judged.unresolved, *more))

    def _says_nothing_more(self, trouble: _Trouble, measured: Sequence[Measured]) -> bool:
        """Whether an output without floating-point numbers, such as labels beside probabilities,
        comes of no layer that the measured outputs do not come of."""
        if trouble.lack not in (Lack.NOT_FLOAT, Lack.NO_NUMBERS) or not measured:
            return False
        try:
            behind = self._lens.points.layers_behind
            known = frozenset().union(*(behind(m.output) for m in measured))
            return behind(trouble.output) <= known
        except OctavoError:  # the models cannot be looked into
            return True

    def _is_drawn(self, trouble: _Trouble, runs: Sequence[Run], max_error: float) -> bool:
        """Whether the float model does not agree with itself, and nobody can see why: it draws by
        chance where nothing can be given to it, in a branch, a loop or an operator of its own."""
        if trouble.lack is not None:
            return False
        try:
            if self._lens.points.draws:
                return False  # these can be given
        except OctavoError:  # the model cannot be looked into
            pass
        i = self._names.index(trouble.output)
        for run in runs:
            once, again = tensors(run.expected[i]), tensors(self._again(run.feed)[i])
            if [a.shape for a in once] != [a.shape for a in again]:
                return True
            found = _measured(trouble.output, trouble.output, [(run.feed, once, again)])
            if found.error > max_error:
                return True
        return False

    def silent(self, runs: Sequence[Run]) -> Measured | None:
        """Where the outputs are equal: the last layer whose own values differ; where none does, the
        last whose values show something, with the error 0. None where there is no such layer."""
        try:
            if not self._lens.is_affordable or not self._lens.layers:
                return None
            at = {n: layer for layer, names in self._lens.layers.items() for n in names[:1]}
            if not at:
                return None
            values = _Values(self._lens, list(at), (), runs)
        except OctavoError:
            return None
        equal = None
        for name in reversed(at):
            found = values.measure(name, name, f"at layer {at[name]!r}", None)
            if isinstance(found, Measured) and found.error > 0:
                return found
            if isinstance(found, Measured) and equal is None:
                equal = found
        return equal

    def _plain(
        self, name: str, pairs: Sequence[tuple[Feed, Arrays, Arrays]], max_error: float | None
    ) -> Measured | _Trouble | None:
        """What the numbers of the output itself say."""
        for _, a, b in pairs:
            shapes = [x.shape for x in a], [x.shape for x in b]
            if all(map(is_float, a)) and shapes[0] != shapes[1]:
                if _is_finite(a) and not _is_finite(b):
                    return Measured(name, name, float("inf"), 1.0, pairs[0][0], non_finite=1)
                if max_error is None:
                    return None
                one, other = (x[0] if x else () for x in shapes)
                return _Trouble(name, misfit=Misfit(name, one, other))
        why = lack([x for _, a, _ in pairs for x in a])
        found = None if why in _NO_FLOATS else _measured(name, name, pairs)
        if found is not None and found.non_finite:
            return found
        if why is not None or found is None:
            return _Trouble(name, why)
        if max_error is not None and found.error > max_error:
            return _Trouble(name, measured=found)
        if max_error is not None and _looks_squashed(pairs):
            return _Trouble(name, Lack.SATURATED, measured=found)
        return found

    def _look(
        self,
        runs: Sequence[Run],
        measured: list[Measured],
        troubles: Sequence[_Trouble],
        max_error: float,
    ) -> Judgement:
        try:
            return _Resolution(self._lens, runs, max_error).resolve(measured, troubles)
        except OctavoError as error:  # the models cannot be looked into
            found, misfits, unresolved = list(measured), list[Misfit](), list[str]()
            for trouble in troubles:
                if trouble.measured is not None:
                    found.append(trouble.measured)
                elif trouble.misfit is not None:
                    misfits.append(trouble.misfit)
                else:
                    unresolved.append(_sentence(trouble))
            return Judgement(tuple(found), tuple(misfits), tuple(unresolved), (str(error),))


class _Resolution:
    """Looks into both models once for all outputs that need it."""

    def __init__(self, lens: Lens, runs: Sequence[Run], max_error: float) -> None:
        self._lens, self._runs, self._max_error = lens, runs, max_error

    def resolve(self, measured: list[Measured], troubles: Sequence[_Trouble]) -> Judgement:
        points = self._lens.points
        open_, done = list[_Trouble](), list(measured)
        for trouble in troubles:
            if not points.is_computed(trouble.output) and trouble.measured is None:
                continue  # no layer has a part in it
            bounds = points.bounds(trouble.output)
            pairs = _pairs(self._runs, trouble.output, self._lens)
            saturated = lack([x for _, a, _ in pairs for x in a], bounds) is Lack.SATURATED
            if trouble.lack is Lack.SATURATED and not saturated and trouble.measured is not None:
                done.append(trouble.measured)  # it only looked like that
                continue
            inverted = None
            if saturated and bounds is not None:
                trouble.lack = Lack.SATURATED
                where = f"before {bounds.node}, whose output is saturated"
                inverted = _invert(pairs, bounds, trouble.output, trouble.output, where)
            if inverted is not None:
                done.append(replace(inverted, may_show=True))
            else:
                open_.append(trouble)
        if not open_:
            return Judgement(tuple(done))
        return self._compare_inside(done, open_)

    def _compare_inside(self, done: list[Measured], troubles: Sequence[_Trouble]) -> Judgement:
        points = self._lens.points
        decisions = dict[Decision, None]()
        for trouble in troubles:
            if trouble.lack is None:
                decisions.update(dict.fromkeys(points.decided_before(trouble.output)))
        forced = [*points.draws, *(name for d in decisions for name in d.outputs)]
        far = [t for t in troubles if t.lack is None and not forced]
        misfits = [t.misfit for t in far if t.misfit is not None]
        done += [t.measured for t in far if t.measured is not None]
        troubles = [t for t in troubles if t not in far]
        if not troubles:
            return Judgement(tuple(done), tuple(misfits))
        starts = [t.output for t in troubles]
        starts += [name for d in decisions for name in d.inputs]
        shown = [name for start in starts for name in (start, *points.behind(start))]
        values = _Values(self._lens, shown, forced, self._runs)
        unresolved = list[str]()
        for decision in decisions:
            for name in decision.inputs:
                where = f"before {decision.said}, which decides what follows"
                found = values.worst(name, name, where)
                if found is not None:
                    done.append(replace(found, decides=True))
                else:
                    unresolved.append(f"what {decision.said} reads could not be compared")
        for trouble in troubles:
            where = self._where(trouble, decisions)
            found = values.worst(trouble.output, trouble.output, where)
            if found is not None:
                may_show = trouble.lack in (Lack.CONSTANT, Lack.SATURATED, Lack.NOT_FINITE)
                done.append(replace(found, may_show=may_show))
            elif (misfit := values.misfit(trouble.output)) is not None:
                misfits.append(misfit)
            else:
                unresolved.append(_sentence(trouble))
        return Judgement(tuple(done), tuple(misfits), tuple(unresolved))

    def _where(self, trouble: _Trouble, decisions: Mapping[Decision, None]) -> str:
        if trouble.lack is not None:
            bounds = self._lens.points.bounds(trouble.output)
            node = bounds.node if bounds else self._lens.points.made_by(trouble.output)
            return f"before {node}, whose output {trouble.lack.value}"
        given = [d.said for d in decisions]
        if len(given) > MOST_NAMED:
            given = [*given[:MOST_NAMED], f"{len(given) - MOST_NAMED} more decisions"]
        if self._lens.points.draws:
            given.append("noise")
        return f"with the float model's {' and '.join(given)} in both"


class _Values:
    """Values of both models in the given runs."""

    def __init__(
        self, lens: Lens, shown: Sequence[str], forced: Sequence[str], runs: Sequence[Run]
    ) -> None:
        self._lens, self._forced = lens, tuple(forced)
        self._shown = frozenset(shown)
        look = lens.look(shown, forced)
        self._found = [(run.feed, *look.run(run.feed)) for run in runs]

    def worst(self, start: str, output: str, where: str) -> Measured | None:
        """The largest distance at `start`, or where that shows nothing at the nearest values behind
        it that do, on each way there."""
        points, found, seen, waiting = self._lens.points, list[Measured](), {start}, [start]
        for name in waiting:  # grows while it is walked
            measured = self.measure(name, output, where, points.bounds(name))
            if measured is not None:
                found.append(measured)
                continue
            new = [n for n in points.next_behind(name) if n not in seen and n in self._shown]
            seen.update(new)
            waiting += new
        return max(found, key=lambda m: m.error, default=None)

    def measure(self, name: str, output: str, where: str, bounds: Bounds | None) -> Measured | None:
        """The distance at one value, or None where it shows nothing."""
        if name in self._forced:
            return None
        pairs = list(self._pairs(name))
        if len(pairs) < len(self._found):
            return None
        if any(a[0].shape != b[0].shape for _, a, b in pairs):
            return None
        why = lack([a[0] for _, a, _ in pairs], bounds)
        if why is Lack.SATURATED and bounds is not None:
            return _invert(pairs, bounds, output, name, where, self._forced)
        found = None if why is not None else _measured(output, name, pairs, where, self._forced)
        if found is not None and found.non_finite and self._forced:
            return None  # other decisions than its own may lead a model outside what it computes
        return found

    def misfit(self, name: str) -> Misfit | None:
        """The shapes of a value where they differ."""
        for _, a, b in self._pairs(name):
            if a[0].shape != b[0].shape:
                return Misfit(name, a[0].shape, b[0].shape)
        return None

    def _pairs(self, name: str) -> Iterator[tuple[Feed, Arrays, Arrays]]:
        for feed, theirs, ours in self._found:
            a, b = theirs.get(name), ours.get(name)
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
                yield feed, [a], [b]


def _pairs(runs: Sequence[Run], output: str, lens: Lens) -> list[tuple[Feed, Arrays, Arrays]]:
    i = lens.outputs.index(output)
    return [(run.feed, tensors(run.expected[i]), tensors(run.got[i])) for run in runs]


def _invert(
    pairs: Sequence[tuple[Feed, Arrays, Arrays]],
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
    return _measured(output, value, found, where, forced)


def _measured(
    output: str,
    value: str,
    pairs: Sequence[tuple[Feed, Arrays, Arrays]],
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


def _is_finite(arrays: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays)


def _flat(arrays: Arrays, where: Arrays) -> Array:
    parts = [x[np.isfinite(y)].astype(np.float64) for x, y in zip(arrays, where, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _looks_squashed(pairs: Sequence[tuple[Feed, Arrays, Arrays]]) -> bool:
    """Whether an output may be a saturated sigmoid, tanh, softmax or clip: only then is it asked
    what made it."""
    values = np.concatenate([x[np.isfinite(x)].ravel() for _, a, _ in pairs for x in a])
    low, high = float(values.min()), float(values.max())
    if low >= -1 and high <= 1:
        small = np.abs(values)
        return bool(((small > LITTLE) & (small < HIGH)).mean() < 2 * ENOUGH)
    return bool(((values > low) & (values < high)).mean() < ENOUGH)


def _by_chance(trouble: _Trouble) -> str:
    return f"output {trouble.output!r} differs between two runs of the float model itself"


def _sentence(trouble: _Trouble) -> str:
    if trouble.misfit is not None:
        return f"output {trouble.output!r} has another shape in each model"
    why = trouble.lack.value if trouble.lack is not None else "could not be compared"
    return f"output {trouble.output!r} {why}"
