"""Outputs that show nothing are compared where the models still can be: looked into, with the
float model's decisions and draws in both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from octavo.onnx.check.information import Bounds, Lack, lack, tensors
from octavo.onnx.check.lens import Lens
from octavo.onnx.check.measuring import (
    MOST_NAMED,
    Arrays,
    Judgement,
    Measured,
    Misfit,
    Run,
    inverted,
    measured,
)
from octavo.onnx.check.points import Decision
from octavo.onnx.inputs import Feed


@dataclass
class Trouble:
    """An output that its own numbers do not tell enough of."""

    output: str
    lack: Lack | None = None
    measured: Measured | None = None
    misfit: Misfit | None = None


def sentence(trouble: Trouble) -> str:
    """Of an output that nothing could be said of."""
    if trouble.misfit is not None:
        return f"output {trouble.output!r} has another shape in each model"
    why = trouble.lack.value if trouble.lack is not None else "could not be compared"
    return f"output {trouble.output!r} {why}"


class Resolution:
    """Looks into both models once for all outputs that need it."""

    def __init__(self, lens: Lens, runs: Sequence[Run], max_error: float) -> None:
        self._lens, self._runs, self._max_error = lens, runs, max_error

    def resolve(self, known: list[Measured], troubles: Sequence[Trouble]) -> Judgement:
        """`known` and what can be found out about the others. Raises OctavoError."""
        points = self._lens.points
        open_, done = list[Trouble](), list(known)
        for trouble in troubles:
            if not points.is_computed(trouble.output) and trouble.measured is None:
                continue  # no layer has a part in it
            bounds = points.bounds(trouble.output)
            pairs = _pairs(self._runs, trouble.output, self._lens)
            saturated = lack([x for _, a, _ in pairs for x in a], bounds) is Lack.SATURATED
            if trouble.lack is Lack.SATURATED and not saturated and trouble.measured is not None:
                done.append(trouble.measured)  # it only looked like that
                continue
            from_output = None
            if saturated and bounds is not None:
                trouble.lack = Lack.SATURATED
                where = f"before {bounds.node}, whose output is saturated"
                from_output = inverted(pairs, bounds, trouble.output, trouble.output, where)
            if from_output is not None:
                done.append(replace(from_output, may_show=True))
            else:
                open_.append(trouble)
        if not open_:
            return Judgement(tuple(done))
        return self._compare_inside(done, open_)

    def _compare_inside(self, done: list[Measured], troubles: Sequence[Trouble]) -> Judgement:
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
        values = Values(self._lens, shown, forced, self._runs)
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
                unresolved.append(sentence(trouble))
        return Judgement(tuple(done), tuple(misfits), tuple(unresolved))

    def _where(self, trouble: Trouble, decisions: Mapping[Decision, None]) -> str:
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


class Values:
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
            here = self.measure(name, output, where, points.bounds(name))
            if here is not None:
                found.append(here)
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
            return inverted(pairs, bounds, output, name, where, self._forced)
        found = None if why is not None else measured(output, name, pairs, where, self._forced)
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
