"""What a strategy is given, and what it gives back: the loop drives it as a generator.

A strategy yields candidates, a batch at a time, and is sent their trials in the same order. It
decides what to try; the loop decides when to stop, never evaluates one model twice, and answers
from the history what was measured before. So a strategy must depend on nothing but its arguments,
the seed and the trials it was sent: a search that is resumed replays it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from octavo.results.tuning import Approach, Trial

if TYPE_CHECKING:
    from octavo.recipe import Recipe
    from octavo.tune.space import Space


@dataclass(frozen=True)
class Candidate:
    """A recipe to try; `words` say it in words, such as `int8, 2 of 37 layers float: a, b`."""

    recipe: Recipe
    words: str
    approach: Approach = Approach.DYNAMIC


class Ground(Protocol):
    """What a strategy may ask beside trials. Nothing of it counts as an evaluation."""

    @property
    def space(self) -> Space:
        """The layers and what each may become."""

    @property
    def seed(self) -> int:
        """Of every random choice."""

    @property
    def max_trials(self) -> int:
        """How many trials the whole search may have, those before this strategy included."""

    @property
    def timed(self) -> bool:
        """Whether the objective depends on measured latency."""

    @property
    def keeps_going(self) -> bool:
        """Whether the search goes on after a recipe meets the criterion (a timeout was given)."""

    @property
    def baseline(self) -> Trial:
        """The float model's trial."""

    @property
    def bound(self) -> float:
        """The largest `Trial.loss` that meets the criterion."""

    def errors(self, recipe: Recipe, sets: Sequence[Collection[str]]) -> Sequence[float]:
        """The output's error with each set of layers quantized, all others float; a run each."""

    def rank(self, sensitivities: Mapping[str, float]) -> None:
        """Shows what each layer alone does to the output, in the result and on the terminal."""

    def time_ratios(self, candidates: Sequence[Candidate]) -> Sequence[tuple[float, float]]:
        """Quartiles (low, high) of each candidate's time over the first one's, run in turns."""

    def better(self, a: Trial, b: Trial) -> bool:
        """Whether `a` is the better result: it meets the criterion and `b` does not, or its score
        is less; among those that do not meet it, whose loss is less."""


Steps = Generator[Sequence[Candidate], Sequence[Trial], None]


class Strategy(Protocol):
    """A way to search.

    `converges` says that it ends by itself in a few trials and stops no sooner; the others are
    stopped at the first trial that meets the criterion, unless `Ground.keeps_going`.
    """

    name: str
    converges: bool

    def search(self, ground: Ground) -> Steps:
        """The search, as a generator."""
