"""How far two models are apart on some inputs, wherever that can be seen.

An output that shows it is compared itself. One that does not (`information`), that has another
shape in each model, or that decisions and noise drive apart is compared where it can be (`points`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from octavo.errors import OctavoError
from octavo.onnx.check.information import Lack, is_float, lack, tensors
from octavo.onnx.check.lens import Lens
from octavo.onnx.check.measuring import (
    Judgement,
    Measured,
    Misfit,
    Pairs,
    Run,
    is_finite,
    looks_squashed,
    measured,
)
from octavo.onnx.check.resolution import Resolution, Trouble, Values, sentence
from octavo.onnx.inputs import Feed

_NO_FLOATS = (Lack.NO_NUMBERS, Lack.EMPTY, Lack.NOT_FLOAT, Lack.NOT_FINITE)


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
        measured, troubles = list[Measured](), list[Trouble]()
        for i, name in enumerate(self._names):
            pairs = [(run.feed, tensors(run.expected[i]), tensors(run.got[i])) for run in runs]
            found = self._plain(name, pairs, max_error)
            if isinstance(found, Measured):
                measured.append(found)
            elif found is not None:
                troubles.append(found)
        if max_error is None:
            return Judgement(tuple(measured), unresolved=tuple(map(sentence, troubles)))
        troubles = [t for t in troubles if not self._says_nothing_more(t, measured)]
        by_chance = [t for t in troubles if self._is_drawn(t, runs, max_error)]
        troubles = [t for t in troubles if t not in by_chance]
        if not troubles:
            return Judgement(tuple(measured), unresolved=tuple(map(_by_chance, by_chance)))
        judged = self._look(runs, measured, troubles, max_error)
        more = tuple(map(_by_chance, by_chance))
        return replace(judged, unresolved=(*judged.unresolved, *more))

    def _says_nothing_more(self, trouble: Trouble, measured: Sequence[Measured]) -> bool:
        """Whether an output without floating-point numbers, such as labels beside probabilities,
        comes of no layer that the measured outputs do not come of."""
        if trouble.lack not in (Lack.NOT_FLOAT, Lack.NO_NUMBERS) or not measured:
            return False
        try:
            known = [self._lens.layers_behind(m.output) for m in measured]
            return self._lens.layers_behind(trouble.output) <= frozenset().union(*known)
        except OctavoError:  # the models cannot be looked into
            return True

    def _is_drawn(self, trouble: Trouble, runs: Sequence[Run], max_error: float) -> bool:
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
            found = measured(trouble.output, trouble.output, [(run.feed, once, again)])
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
            values = Values(self._lens, list(at), (), runs)
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

    def _plain(self, name: str, pairs: Pairs, max_error: float | None) -> Measured | Trouble | None:
        """What the numbers of the output itself say."""
        for _, a, b in pairs:
            shapes = [x.shape for x in a], [x.shape for x in b]
            if all(map(is_float, a)) and shapes[0] != shapes[1]:
                if is_finite(a) and not is_finite(b):
                    return Measured(name, name, float("inf"), 1.0, pairs[0][0], non_finite=1)
                if max_error is None:
                    return None
                one, other = (x[0] if x else () for x in shapes)
                return Trouble(name, misfit=Misfit(name, one, other))
        why = lack([x for _, a, _ in pairs for x in a])
        found = None if why in _NO_FLOATS else measured(name, name, pairs)
        if found is not None and found.non_finite:
            return found
        if why is not None or found is None:
            return Trouble(name, why)
        if max_error is not None and found.error > max_error:
            return Trouble(name, measured=found)
        if max_error is not None and looks_squashed(pairs):
            return Trouble(name, Lack.SATURATED, measured=found)
        return found

    def _look(
        self,
        runs: Sequence[Run],
        measured: list[Measured],
        troubles: Sequence[Trouble],
        max_error: float,
    ) -> Judgement:
        try:
            return Resolution(self._lens, runs, max_error).resolve(measured, troubles)
        except OctavoError as error:  # the models cannot be looked into
            found, misfits, unresolved = list(measured), list[Misfit](), list[str]()
            for trouble in troubles:
                if trouble.measured is not None:
                    found.append(trouble.measured)
                elif trouble.misfit is not None:
                    misfits.append(trouble.misfit)
                else:
                    unresolved.append(sentence(trouble))
            return Judgement(tuple(found), tuple(misfits), tuple(unresolved), (str(error),))


def _by_chance(trouble: Trouble) -> str:
    return f"output {trouble.output!r} differs between two runs of the float model itself"
