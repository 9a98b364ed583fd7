"""What runs of two models showed, as reports have it."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.onnx.check.distance import Distance
from octavo.results.report import Verification
from octavo.results.words import count

MOST_DECISIONS_NAMED = 2  # decisions in a sentence


@dataclass(frozen=True)
class ShapeMismatch:
    """An output whose shapes differ, and nothing that could be given tells why."""

    output: str
    expected: tuple[int, ...]
    got: tuple[int, ...]


@dataclass(frozen=True)
class Findings:
    """What runs showed. `unresolved` are sentences about outputs that nothing could be said of."""

    distances: tuple[Distance, ...] = ()
    mismatches: tuple[ShapeMismatch, ...] = ()
    unresolved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> Distance | None:
        """The largest error."""
        return max(self.distances, key=lambda d: d.error, default=None)

    @property
    def summary(self) -> str:
        """Say in a line where the models were compared, and what showed nothing."""
        decided = [d.where for d in self.distances if d.decides]
        where = dict.fromkeys(d.where for d in self.distances if d.where and not d.decides)
        if len(decided) > MOST_DECISIONS_NAMED:
            decided = [f"before {len(decided)} nodes that decide what follows"]
        return "; ".join((*dict.fromkeys(decided), *where, *self._lost, *self.unresolved))

    @property
    def _lost(self) -> list[str]:
        """Sentences about outputs of which the float model's numbers are not finite."""
        return [
            f"{count(d.lost, 'number')} of {d.output!r} not finite in the float model, left out"
            for d in self.distances
            if d.lost
        ]

    @property
    def is_done(self) -> bool:
        """Tell whether other inputs would show no more: a difference was seen, as far as can be."""
        worst = self.worst
        if worst is None or not worst.error or self.unresolved:
            return False
        return not any(d.may_show for d in self.distances)

    def verification(
        self,
        kind: str,
        runs: int,
        max_error: float | None,
        ran_on: str,
        *,
        nothing: str = "",
        more: str = "",
        unreached: tuple[str, ...] = (),
        padding: int = 0,
    ) -> Verification:
        """Return the findings in the form of reports.

        `nothing` is said where no output was compared, `more` at the end.
        """
        worst = self.worst
        if worst is None:
            detail = "; ".join(dict.fromkeys((*self.unresolved, *self.notes))) or nothing
            return Verification(
                "unchecked", kind, runs, detail=detail, ran_on=ran_on, unreached=unreached
            )
        is_whole = not self.unresolved and all(not d.where and not d.lost for d in self.distances)
        return Verification(
            "passed" if is_whole else "compared",
            kind,
            runs,
            worst.error,
            worst.cosine,
            max_error,
            "; ".join(filter(None, (self.summary, more))),
            ran_on,
            unreached,
            padding,
        )
