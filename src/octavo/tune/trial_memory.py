"""What a search has tried, by what its candidates change; none is yielded twice.

Beside it how strategies cut sequences: into batches of candidates, and into groups of layers.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import TypeAlias, TypeVar

from octavo.recipe import Scheme
from octavo.results.tuning import Trial
from octavo.tune.search import Candidate, SearchContext

Assignment: TypeAlias = Mapping[str, Scheme]
Key: TypeAlias = frozenset[tuple[str, Scheme]]
Item = TypeVar("Item")

BATCH = 4  # candidates yielded at once, whatever the number of workers: results depend on it
NEAR = 2.0  # errors of outputs within this factor are alike
FAR = 25.0  # and with one below the other by this factor (5 in distance) they are not


class TrialMemory:
    """Asks for trials, remembers them, and ends by itself after `limit` of them.

    `best` is the best assignment so far (see `SearchContext.better`), `best_trial` its trial.
    """

    def __init__(self, context: SearchContext, limit: int | None = None) -> None:
        self.context = context
        self.limit = limit
        self.trials: dict[Key, Trial] = {}
        self.best: Assignment = {}
        self.best_trial: Trial | None = None
        self._asked: dict[Key, Assignment] = {}
        self._proxies: dict[Key, float] = {}

    @property
    def left(self) -> float:
        """Return how many more trials there may be."""
        return math.inf if self.limit is None else max(0, self.limit - len(self.trials))

    @property
    def met(self) -> bool:
        """Tell whether a trial met the criterion."""
        return self.best_trial is not None and self.best_trial.meets

    def key(self, assignment: Assignment) -> Key:
        """Equal for assignments that give the same recipe."""
        return frozenset(self.context.space.settle(assignment).items())

    def knows(self, assignment: Assignment) -> bool:
        """Tell whether it was tried."""
        return self.key(assignment) in self.trials

    def ask(
        self, assignments: Sequence[Assignment]
    ) -> Generator[Sequence[Candidate], Sequence[Trial], list[Trial | None]]:
        """Return the trial of each assignment, known or yielded now, all new ones as one batch.

        None for what is beyond the limit, and for what would be the float model.
        """
        space = self.context.space
        new: dict[Key, Assignment] = {}
        for assignment in assignments:
            key = self.key(assignment)
            if key in self.trials or key in new or len(new) >= self.left:
                continue
            if not key or space.quantized_layers(assignment):
                new[key] = assignment
        if new:
            trials = yield [space.candidate(a) for a in new.values()]
            for (key, assignment), trial in zip(new.items(), trials, strict=True):
                self.trials[key], self._asked[key] = trial, assignment
                if self.best_trial is None or self.context.better(trial, self.best_trial):
                    self.best, self.best_trial = assignment, trial
        return [self.trials.get(self.key(assignment)) for assignment in assignments]

    def meets(
        self, assignment: Assignment
    ) -> Generator[Sequence[Candidate], Sequence[Trial], bool]:
        """Tell whether its trial meets the criterion; False where there may be no more trials."""
        (trial,) = yield from self.ask([assignment])
        return trial is not None and trial.meets

    def proxy(self, assignment: Assignment) -> float:
        """Return the output's error, from one run and no evaluation; infinite where that is NaN."""
        key = self.key(assignment)
        if key not in self._proxies:
            space = self.context.space
            recipe = space.candidate(assignment).recipe
            (error,) = self.context.errors(recipe, [space.quantized_layers(assignment)])
            self._proxies[key] = math.inf if math.isnan(error) else error
        return self._proxies[key]

    def hopeless(self, assignment: Assignment) -> bool:
        """Tell whether `assignment` most likely fails to meet the criterion.

        Its output is no nearer to the float model's than in a trial that failed to meet the
        criterion.
        """
        failed = [self.proxy(self._asked[key]) for key in self._failures()]
        return bool(failed) and self.proxy(assignment) >= min(failed)

    def promising(self, assignment: Assignment) -> bool:
        """Tell whether it is not hopeless, and the output about as near to the float model's as in
        a trial that met the criterion, or far nearer than in any that did not."""
        if self.hopeless(assignment):
            return False
        failed = [self.proxy(self._asked[key]) for key in self._failures()]
        near = NEAR * self.proxy(self.best) if self.met else 0.0
        far = min(failed) / FAR if failed else 0.0
        return self.proxy(assignment) <= max(near, far, self.largest_met)

    @property
    def largest_met(self) -> float:
        """The largest error of an output in a trial that met the criterion; 0 without one."""
        met = [self.proxy(self._asked[key]) for key, trial in self.trials.items() if trial.meets]
        return max(met, default=0.0)

    def _failures(self) -> list[Key]:
        """Trials that gave an accuracy, and one that is not enough."""
        return [key for key, trial in self.trials.items() if not (trial.meets or trial.failed)]


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield `items` by BATCH, in order; no more of them are read than are given out."""
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch


def groups(items: Sequence[Item], count: int) -> list[list[Item]]:
    """Split `items` into `count` consecutive runs, whose lengths differ by one at most."""
    edges = [at * len(items) // count for at in range(count + 1)] if items else []
    return [list(items[a:b]) for a, b in pairwise(edges) if a < b]
