"""What a strategy is given, and what it gives back: the loop drives it as a generator.

A strategy yields candidates, a batch at a time, and is sent their trials in the same order. It
decides what to try; the loop decides when to stop, never evaluates one model twice, and answers
from the history what was measured before. So a strategy must depend on nothing but its arguments,
the seed and the trials it was sent: a search that is resumed replays it.

A View is told of all that happens.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from octavo.results.tuning import Approach, LeftOut, Trial

if TYPE_CHECKING:
    from octavo.recipe import Recipe
    from octavo.tune.space import Space


@dataclass(frozen=True)
class Candidate:
    """A recipe to try; `description` is such as `int8, 2 of 37 layers float: a, b`."""

    recipe: Recipe
    description: str
    approach: Approach = Approach.DYNAMIC


class SearchContext(Protocol):
    """What a strategy may ask beside trials. Nothing of it counts as an evaluation."""

    space: Space
    """The layers and what each may become, around the recipe that the search starts from; a
    strategy may put another one of `starts` here."""
    starts: Sequence[Space]
    """The recipes that it may start from; `space` is the first of them at first."""
    seed: int
    """Of every random choice."""
    max_trials: int
    """How many trials the whole search may have, those before this strategy included."""
    timed: bool
    """Whether the objective depends on measured latency."""
    needs_accuracy: bool
    """Whether the accuracy itself is a part of the objective, beside the criterion."""
    keeps_going: bool
    """Whether the search goes on after a recipe meets the criterion (a timeout was given)."""
    bound: float
    """The largest `Trial.loss` that meets the criterion."""

    @property
    def baseline(self) -> Trial:
        """The float model's trial."""

    def appraise(self, candidates: Sequence[Candidate]) -> Sequence[Trial]:
        """Return what the objective says of each, as far as no evaluation is needed for it: `score`
        is None where one is. A candidate that cannot be made has an error."""

    def leave_out(self, candidate: Candidate, why: LeftOut) -> None:
        """Say in the result why a whole recipe is not evaluated."""

    def beats(self, a: Trial, b: Trial) -> bool:
        """Return whether the objective is better for `a` by more than chance, of what `appraise` or
        a trial measured."""

    def errors(self, recipe: Recipe, sets: Sequence[Collection[str]]) -> Sequence[float]:
        """Return the output's error for each set of layers quantized alone; a run each."""

    def rank(self, sensitivities: Mapping[str, float]) -> None:
        """Show what each layer alone does to the output, in the result and on the terminal."""

    def time_ratios(self, candidates: Sequence[Candidate]) -> Sequence[tuple[float, float]]:
        """Quartiles (low, high) of each candidate's time over the first one's, run in turns."""

    def better(self, a: Trial, b: Trial) -> bool:
        """Tell whether `a` is the better result.

        A result that meets the criterion is better than one that does not. Of two that do, the one
        with the lower score is better; of two that do not, the one with the lower loss.
        """


Steps = Generator[Sequence[Candidate], Sequence[Trial], None]


class Strategy(Protocol):
    """A way to search.

    `converges` says that it ends by itself in a few trials and stops no sooner; the others are
    stopped at the first trial that meets the criterion, unless `SearchContext.keeps_going`.
    """

    name: str
    converges: bool

    def search(self, context: SearchContext) -> Steps:
        """Return the search, as a generator."""


class View(Protocol):
    """Told of every event as it happens. `octavo.report.tuning_view` draws them."""

    def start(
        self,
        model: str,
        criterion: str,
        objective: str,
        strategy: str,
        layers: int,
        max_trials: int,
        deadline_seconds: float | None,
        *,
        bound: float,
        relative: bool,
        timed: str,
    ) -> None:
        """Show what is searched for, and how long: `deadline_seconds` is None without a clock.

        `bound` is the largest loss that meets the criterion, `relative` says that losses are
        shares.
        """

    def doing(self, text: str) -> None:
        """Show what is being done now."""

    def baseline(self, trial: Trial) -> None:
        """Show that the float model was measured."""

    def ranked(self, pairs: Sequence[tuple[str, float]], model_runs: int) -> None:
        """Layers by their effect on the output."""

    def trial(self, trial: Trial, best: bool) -> None:
        """Show that a trial was measured; `best` says that none so far was better."""

    def note(self, text: str) -> None:
        """Something to know."""


class Logged:
    """Tells Python's logger `octavo.tune`: of trials at level INFO, of notes at WARNING, which are
    shown where no logging was set up. See View."""

    def __init__(self) -> None:
        self._log = logging.getLogger("octavo.tune")

    def start(self, *what: object, **more: object) -> None:
        self._log.info("tuning %s", ", ".join(map(str, what[:4])))

    def doing(self, text: str) -> None:
        self._log.debug("%s", text)

    def baseline(self, trial: Trial) -> None:
        self._log.info("the float model: accuracy %s", trial.accuracy)

    def ranked(self, pairs: Sequence[tuple[str, float]], model_runs: int) -> None:
        self._log.debug("ranked %d layers in %d runs of the model", len(pairs), model_runs)

    def trial(self, trial: Trial, best: bool) -> None:
        how = "failed" if trial.failed else f"accuracy {trial.accuracy}"
        time = "" if trial.time_ratio is None else f", time {trial.time_ratio:.2f} of float"
        mark = ", best so far" if best else ""
        self._log.info("trial %d: %s: %s%s%s", trial.index, trial.words, how, time, mark)

    def note(self, text: str) -> None:
        self._log.warning("%s", text)


class Quiet(Logged):
    """Nobody watches. See View."""

    def __init__(self) -> None:
        self._log = logging.Logger("quiet", logging.CRITICAL + 1)
