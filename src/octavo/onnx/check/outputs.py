"""How far two models are apart on some inputs, wherever that can be seen.

An output that shows it is compared itself. One that does not (`distance.uninformative`), that has
another shape in each model, or that decisions and noise drive apart is compared where it can be
(`activations`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from octavo.errors import OctavoError
from octavo.onnx.check.activations import ActivationComparison, OpenOutput, SharedValues
from octavo.onnx.check.distance import (
    Distance,
    Pairs,
    Run,
    Uninformative,
    distance,
    is_finite,
    is_float,
    looks_squashed,
    uninformative,
)
from octavo.onnx.check.findings import Findings, ShapeMismatch
from octavo.onnx.check.model_pair import ModelPair
from octavo.onnx.inputs import Feed

_NO_FLOATS = (
    Uninformative.NO_NUMBERS,
    Uninformative.EMPTY,
    Uninformative.NOT_FLOAT,
    Uninformative.NOT_FINITE,
)


class OutputComparison:
    """Compares the outputs with these `names`; looks into the models through `pair`."""

    def __init__(
        self, names: Sequence[str], pair: ModelPair, again: Callable[[Feed], Sequence[Any]]
    ) -> None:
        """Set up the comparison; `again` runs the float model once more."""
        self._names, self._pair, self._again = list(names), pair, again

    def compare(self, runs: Sequence[Run], max_error: float | None) -> Findings:
        """Compare the outputs, and look into the models where outputs do not tell enough.

        With `max_error=None` nothing but the outputs is looked at, and those whose shapes differ
        are left out.
        """
        distances, left = list[Distance](), list[OpenOutput]()
        for i, name in enumerate(self._names):
            pairs = [run.pair(i, name) for run in runs]
            plain = _plain(name, pairs, max_error)
            if isinstance(plain, Distance):
                distances.append(plain)
            elif plain is not None:
                left.append(plain)
        if max_error is None:
            return Findings(tuple(distances), unresolved=tuple(o.sentence for o in left))
        left = [o for o in left if not self._says_nothing_more(o, distances)]
        drawn = [o for o in left if self._is_drawn(o, runs, max_error)]
        left = [o for o in left if o not in drawn]
        found = self._look_inside(runs, distances, left) if left else Findings(tuple(distances))
        same = "differs between two runs of the float model itself"
        more = [f"output {o.output!r} {same}" for o in drawn]
        return replace(found, unresolved=(*found.unresolved, *more))

    def _says_nothing_more(self, left: OpenOutput, distances: Sequence[Distance]) -> bool:
        """Tell whether an output without floating-point numbers has no layers of its own.

        Such an output, labels beside probabilities for example, comes of no layer that the measured
        outputs do not come of.
        """
        if left.lack not in (Uninformative.NOT_FLOAT, Uninformative.NO_NUMBERS) or not distances:
            return False
        try:
            known = [self._pair.layers_behind(d.output) for d in distances]
            return self._pair.layers_behind(left.output) <= frozenset().union(*known)
        except OctavoError:  # the models cannot be looked into
            return True

    def _is_drawn(self, left: OpenOutput, runs: Sequence[Run], max_error: float) -> bool:
        """Tell whether the float model does not agree with itself, and nobody can see why.

        Such a model draws by chance where nothing can be given to it, in a branch, a loop or an
        operator of its own.
        """
        if left.lack is not None:
            return False
        try:
            if self._pair.points.draws:
                return False  # these can be given
        except OctavoError:  # the model cannot be looked into
            pass
        i = self._names.index(left.output)
        for run in runs:
            twice = replace(run, got=self._again(run.feed)).pair(i, left.output)
            if [a.shape for a in twice[1]] != [a.shape for a in twice[2]]:
                return True
            if distance(left.output, left.output, [twice]).error > max_error:
                return True
        return False

    def hidden_difference(self, runs: Sequence[Run]) -> Distance | None:
        """Find the last layer whose own values differ, where the outputs are equal.

        Where none differs, return the last layer whose values show something, with the error 0;
        None where there is no such layer.
        """
        try:
            if not self._pair.is_affordable or not self._pair.shown_by:
                return None
            at = self._pair.shown_by
            values = SharedValues(self._pair, list(at), (), runs)
        except OctavoError:
            return None
        equal = None
        for name in reversed(at):
            found = values.distance(name, name, f"at layer {at[name]!r}", None)
            if found is not None and found.error > 0:
                return found
            equal = equal or found
        return equal

    def _look_inside(
        self, runs: Sequence[Run], distances: list[Distance], left: Sequence[OpenOutput]
    ) -> Findings:
        try:
            return ActivationComparison(self._pair, runs).compare(distances, left)
        except OctavoError as error:  # the models cannot be looked into
            known = (*distances, *(o.distance for o in left if o.distance is not None))
            others = [o for o in left if o.distance is None]
            mismatches = tuple(o.mismatch for o in others if o.mismatch is not None)
            unresolved = tuple(o.sentence for o in others if o.mismatch is None)
            return Findings(known, mismatches, unresolved, (str(error),))


def _plain(name: str, pairs: Pairs, max_error: float | None) -> Distance | OpenOutput | None:
    """Return what the output's own numbers show: a distance, an open output, or None."""
    for _, a, b in pairs:
        shapes = [x.shape for x in a], [x.shape for x in b]
        if all(map(is_float, a)) and shapes[0] != shapes[1]:
            if is_finite(a) and not is_finite(b):
                return Distance(name, name, float("inf"), 1.0, pairs[0][0], non_finite=1)
            if max_error is None:
                return None
            one, other = (x[0] if x else () for x in shapes)
            return OpenOutput(name, mismatch=ShapeMismatch(name, one, other))
    why = uninformative([x for _, a, _ in pairs for x in a])
    found = None if why in _NO_FLOATS else distance(name, name, pairs)
    if found is not None and found.non_finite:
        return found
    if why is not None or found is None:
        return OpenOutput(name, why)
    if max_error is not None and found.error > max_error:
        return OpenOutput(name, distance=found)
    if max_error is not None and looks_squashed(pairs):
        return OpenOutput(name, Uninformative.SATURATED, distance=found)
    return found
