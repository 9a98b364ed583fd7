"""Searches that learn from their trials, through Optuna's samplers.

Each layer is one whole number: how far up its schemes it goes, from the recipe's own to float. So
the sampler knows that float16 lies between int8 and float. A sampler learns little from hundreds of
numbers, and a Gaussian process takes minutes over them: beyond `dimensions` layers they are ranked
by what each does to the output, the first half of the numbers are the worst layers', and equal
groups of the others share one number each.

What a trial is worth is its score where it meets the criterion. Where it does not, it is worse than
every trial that does, the more so the greater its loss. Failed trials are left out.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from octavo.core.packages import need
from octavo.errors import OptionError
from octavo.results.tuning import Trial
from octavo.tune.ranking import rank_layers
from octavo.tune.search import SearchContext, Steps
from octavo.tune.space import LayerChoice
from octavo.tune.trial_memory import BATCH, Assignment, Key, TrialMemory, groups

STARTUP = 8  # random trials before a sampler's own
TRIES = 200  # changes to a proposal that was tried already, before the space counts as exhausted

Point = tuple[int, ...]


@dataclass
class Sampled:
    """A search through `sampler` of Optuna, over `dimensions` numbers at most."""

    name: str
    sampler: str
    dimensions: int
    libraries: tuple[str, ...] = ("optuna",)
    options: Mapping[str, Any] = field(default_factory=dict)
    converges: bool = False

    def __post_init__(self) -> None:
        end = "; strategy 'auto' needs nothing more"
        need(f"strategy {self.name!r} needs", *self.libraries, error=OptionError, otherwise=end)

    def search(self, context: SearchContext) -> Steps:
        """Yield trials without end, or until the space is exhausted, the recipe itself first."""
        import optuna

        tried = TrialMemory(context)
        yield from tried.ask([{}])
        sharing = _sharing(context, self.dimensions)
        draw = random.Random(context.seed)
        with _quiet():
            sampler = getattr(optuna.samplers, self.sampler)(
                seed=context.seed, n_startup_trials=STARTUP, **self.options
            )
        points: dict[Key, Point] = {frozenset(): (0,) * len(sharing)}
        while sharing and (new := _proposals(sampler, sharing, tried, points, draw)):
            points |= new
            yield from tried.ask([_assignment(sharing, point) for point in new.values()])


Bayesian = partial(  # a Gaussian process: about half a second of computing for each trial
    Sampled, "bayesian", "GPSampler", 16, ("optuna", "torch", "scipy")
)
Tpe = partial(  # over all numbers together
    Sampled, "tpe", "TPESampler", 64, options={"multivariate": True}
)


def _proposals(
    sampler: Any,
    sharing: Sequence[Sequence[LayerChoice]],
    tried: TrialMemory,
    points: Mapping[Key, Point],
    draw: random.Random,
) -> dict[Key, Point]:
    """Return up to BATCH new points; none where no new one is found."""
    tops = [max(len(choice.schemes) for choice in group) - 1 for group in sharing]
    space = tried.context.space
    found: dict[Key, Point] = {}
    with _quiet():
        study, numbers = _study(sampler, tops, tried, points)
        # Within a batch each proposal is taken for a bad one, so that the next goes elsewhere.
        lie = max((done.value for done in study.trials), default=0.0)
        for _ in range(BATCH):
            asked = study.ask(numbers)
            study.tell(asked, lie)
            point: Point = tuple(asked.params[str(at)] for at in range(len(tops)))
            for _ in range(TRIES):
                assignment = _assignment(sharing, point)
                key = tried.key(assignment)
                if key not in points and key not in found and space.quantized_layers(assignment):
                    found[key] = point
                    break
                at = draw.randrange(len(point))
                point = (*point[:at], draw.randint(0, tops[at]), *point[at + 1 :])
    return found


def _sharing(context: SearchContext, dimensions: int) -> list[list[LayerChoice]]:
    """Group the layers that share a number of the search; see the module."""
    choices = list(context.space.choices)
    if len(choices) <= dimensions:
        return [[choice] for choice in choices]
    ranking = rank_layers(context, [choice.layer.name for choice in context.space.quantized])
    choices.sort(key=lambda choice: -ranking.get(choice.layer.name, 0.0))
    worst, rest = choices[: dimensions // 2], choices[dimensions // 2 :]
    return [[choice] for choice in worst] + groups(rest, dimensions - len(worst))


def _assignment(sharing: Sequence[Sequence[LayerChoice]], point: Point) -> Assignment:
    """Put each layer as far up its schemes as its number is from 0 to its group's longest."""
    assignment = {}
    for group, number in zip(sharing, point, strict=True):
        top = max(len(choice.schemes) for choice in group) - 1
        for choice in group:
            at = math.ceil(number * (len(choice.schemes) - 1) / top)
            assignment[choice.layer.name] = choice.schemes[at]
    return assignment


def _study(
    sampler: Any, tops: Sequence[int], tried: TrialMemory, points: Mapping[Key, Point]
) -> tuple[Any, dict[str, Any]]:
    """Make a study of all trials so far, anew: a trial's worth changes with those after it."""
    import optuna

    numbers = {str(at): optuna.distributions.IntDistribution(0, top) for at, top in enumerate(tops)}
    study = optuna.create_study(sampler=sampler)
    known = [(points[key], trial) for key, trial in tried.trials.items()]
    worths = _worths([trial for _, trial in known], tried.context)
    for (point, _), worth in zip(known, worths, strict=True):
        if worth is not None:
            params = {str(at): number for at, number in enumerate(point)}
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=numbers, value=worth)
            )
    return study, numbers


def _worths(trials: Sequence[Trial], context: SearchContext) -> list[float | None]:
    """Return what each trial is worth, the less the better; None for those that failed."""
    scores = [t.score for t in trials if t.meets and t.score is not None]
    if context.baseline.score is not None:
        scores.append(context.baseline.score)
    top = max(scores, default=0.0)
    width = (top - min(scores, default=0.0)) or abs(top) or 1.0
    worths: list[float | None] = []
    for trial in trials:
        if trial.failed or trial.loss is None:
            worths.append(None)
        elif trial.meets:
            worths.append(top if trial.score is None else trial.score)
        else:
            worths.append(top + width * (1 + _share(trial.loss - context.bound, context.bound)))
    return worths


def _share(excess: float, bound: float) -> float:
    """Map `excess` to a share that grows from 0 to 1, half where it is as large as the bound."""
    unit = abs(bound) or 1.0
    if math.isnan(excess) or excess == math.inf:
        return 1.0
    return max(excess, 0.0) / (unit + max(excess, 0.0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log and its warnings that a sampler is experimental."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
