"""Outputs that show nothing are compared where the models still can be: looked into, with the
float model's decisions and draws in both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from octavo.onnx.check.decisions import NodeDecision
from octavo.onnx.check.distance import (
    Bounds,
    Distance,
    Pair,
    Run,
    Uninformative,
    distance,
    distance_before,
    seen,
    uninformative,
)
from octavo.onnx.check.findings import MOST_DECISIONS_NAMED, Findings, ShapeMismatch
from octavo.onnx.check.model_pair import ModelPair, PairSessions

_MAY_SHOW = (Uninformative.CONSTANT, Uninformative.SATURATED, Uninformative.NOT_FINITE)


@dataclass(frozen=True)
class OpenOutput:
    """An output that its own numbers do not tell enough of."""

    output: str
    lack: Uninformative | None = None
    distance: Distance | None = None
    mismatch: ShapeMismatch | None = None

    @property
    def sentence(self) -> str:
        """Say why nothing could be said of the output."""
        if self.mismatch is not None:
            return f"output {self.output!r} has another shape in each model"
        why = self.lack.value if self.lack is not None else "could not be compared"
        return f"output {self.output!r} {why}"


class ActivationComparison:
    """Looks into both models once for all outputs that need it."""

    def __init__(self, pair: ModelPair, runs: Sequence[Run]) -> None:
        self._pair, self._runs = pair, runs

    def compare(self, known: Sequence[Distance], outputs: Sequence[OpenOutput]) -> Findings:
        """Return `known` and what can be found out about `outputs`. Raises OctavoError."""
        done, left = list(known), list[OpenOutput]()
        for output in outputs:
            if not self._pair.points.is_computed(output.output) and output.distance is None:
                continue  # no layer has a part in it
            found = self._from_output(output)
            if isinstance(found, Distance):
                done.append(found)
            else:
                left.append(found)
        return self._compare_inside(done, left) if left else Findings(tuple(done))

    def _from_output(self, output: OpenOutput) -> Distance | OpenOutput:
        """Compute the distance before a squashing node from its output; else return `output`."""
        name, bounds = output.output, self._pair.points.bounds(output.output)
        i = self._pair.outputs.index(name)
        pairs = [run.pair(i, name, bounds) for run in self._runs]
        why = uninformative([x for _, a, _ in pairs for x in a], bounds)
        if why is Uninformative.SATURATED and bounds is not None:
            where = f"before {bounds.node}, whose output is saturated"
            found = distance_before(bounds, name, name, pairs, where)
            if found is not None:
                return replace(found, may_show=True)
            return replace(output, lack=Uninformative.SATURATED)
        if output.lack is Uninformative.SATURATED and output.distance is not None:
            return output.distance  # it only looked like that
        return output

    def _compare_inside(self, done: list[Distance], outputs: Sequence[OpenOutput]) -> Findings:
        points = self._pair.points
        decisions = list(
            dict.fromkeys(
                decision
                for output in outputs
                if output.lack is None
                for decision in points.decided_before(output.output)
            )
        )
        forced = [*points.draws, *(name for d in decisions for name in d.outputs)]
        far = [o for o in outputs if o.lack is None and not forced]
        mismatches = [o.mismatch for o in far if o.mismatch is not None]
        done += [o.distance for o in far if o.distance is not None]
        outputs = [o for o in outputs if o not in far]
        if not outputs:
            return Findings(tuple(done), tuple(mismatches))
        starts = [o.output for o in outputs]
        starts += [name for d in decisions for name in d.inputs]
        shown = [name for start in starts for name in (start, *points.behind(start))]
        values = SharedValues(self._pair, shown, forced, self._runs)
        unresolved = list[str]()
        for decision in decisions:
            for name in decision.inputs:
                where = f"before {decision.label}, which decides what follows"
                found = values.worst(name, where)
                if found is not None:
                    done.append(replace(found, decides=True))
                else:
                    unresolved.append(f"what {decision.label} reads could not be compared")
        for output in outputs:
            found = values.worst(output.output, self._where(output, decisions))
            if found is not None:
                done.append(replace(found, may_show=output.lack in _MAY_SHOW))
            elif (mismatch := values.mismatch(output.output)) is not None:
                mismatches.append(mismatch)
            else:
                unresolved.append(output.sentence)
        return Findings(tuple(done), tuple(mismatches), tuple(unresolved))

    def _where(self, output: OpenOutput, decisions: Sequence[NodeDecision]) -> str:
        points = self._pair.points
        if output.lack is not None:
            bounds = points.bounds(output.output)
            node = bounds.node if bounds else points.made_by(output.output)
            return f"before {node}, whose output {output.lack.value}"
        given = [d.label for d in decisions]
        if len(given) > MOST_DECISIONS_NAMED:
            given = [
                *given[:MOST_DECISIONS_NAMED],
                f"{len(given) - MOST_DECISIONS_NAMED} more decisions",
            ]
        if points.draws:
            given.append("noise")
        return f"with the float model's {' and '.join(given)} in both"


class SharedValues:
    """Values of both models in the given runs."""

    def __init__(
        self, pair: ModelPair, shown: Sequence[str], forced: Sequence[str], runs: Sequence[Run]
    ) -> None:
        self._pair, self._forced = pair, tuple(forced)
        self._shown = frozenset(shown)
        sessions = PairSessions(pair, shown, forced)
        self._found = [(run, *sessions.run(run.feed)) for run in runs]

    def worst(self, output: str, where: str) -> Distance | None:
        """Return the largest distance at `output`, or behind it where `output` shows nothing.

        Behind it, the nearest values that show something count, on each way there.
        """
        points, found, seen, waiting = self._pair.points, list[Distance](), {output}, [output]
        for name in waiting:  # grows while it is walked
            here = self.distance(name, output, where, points.bounds(name))
            if here is not None:
                found.append(here)
                continue
            new = [n for n in points.next_behind(name) if n not in seen and n in self._shown]
            seen.update(new)
            waiting += new
        return max(found, key=lambda d: d.error, default=None)

    def distance(
        self, name: str, output: str, where: str, bounds: Bounds | None
    ) -> Distance | None:
        """Return the distance at the value `name`, or None where the value shows nothing."""
        if name in self._forced:
            return None
        pairs = list(self._pairs(name, bounds))
        if len(pairs) < len(self._found):
            return None
        if any(a[0].shape != b[0].shape for _, a, b in pairs):
            return None
        why = uninformative([a[0] for _, a, _ in pairs], bounds)
        if why is Uninformative.SATURATED and bounds is not None:
            return distance_before(bounds, output, name, pairs, where, self._forced)
        found = None if why is not None else distance(output, name, pairs, where, self._forced)
        if found is not None and found.non_finite and self._forced:
            return None  # other decisions than its own may lead a model outside what it computes
        return found

    def mismatch(self, name: str) -> ShapeMismatch | None:
        """Return the two shapes of the value `name` where they differ; None where they agree."""
        for _, a, b in self._pairs(name):
            if a[0].shape != b[0].shape:
                return ShapeMismatch(name, a[0].shape, b[0].shape)
        return None

    def _pairs(self, name: str, bounds: Bounds | None = None) -> Iterator[Pair]:
        for run, theirs, ours in self._found:
            a, b = theirs.get(name), ours.get(name)
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
                yield (run.feed, *seen(run.padding, name, [a], [b], bounds))
