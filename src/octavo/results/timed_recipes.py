"""What became of the whole recipes that a search timed, or weighed, before it evaluated any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from octavo.results import trial_words as say
from octavo.results.words import size

if TYPE_CHECKING:
    from octavo.results.tuning import Trial, TuneResult

TITLE = "Whole recipes, timed in turns before any was evaluated"
WEIGHED = "Whole recipes, weighed before any was evaluated"
HEADINGS = ("recipe", say.RATIO, "99% interval", "size", "what became of it")
"""Of each row. Times are over the float model's."""
FIGURES = (say.RATIO, "size")


def title(result: TuneResult) -> str:
    """What the table is."""
    return TITLE if any(one.time_ratio is not None for one in result.timed) else WEIGHED


def timed_recipes(result: TuneResult) -> Iterator[tuple[str, ...]]:
    """A row a recipe, the one with the best objective first."""
    evaluated = {trial.key: trial for trial in result.trials}
    for one in sorted(result.timed, key=_score):
        interval = ""
        if one.time_low is not None and one.time_high is not None:
            interval = f"{one.time_low:.2f} to {one.time_high:.2f}"
        weight = "" if one.bytes is None else size(one.bytes)
        became = _became(one, evaluated, result)
        yield say.recipe(one), say.time_ratio(one.time_ratio), interval, weight, became


def _score(trial: Trial) -> float:
    return float("inf") if trial.score is None or trial.failed else trial.score


def _became(one: Trial, evaluated: dict[str, Trial], result: TuneResult) -> str:
    trial = evaluated.get(one.key)
    if trial is not None:
        return f"evaluated: trial {trial.index}"
    if one.failed:
        return f"cannot be run: {say.last_of(one.error)}"
    if _score(one) >= 1 or one.shows_no_difference:
        return "not evaluated: no better than the float model"
    met = [t for t in result.timed if t.key in evaluated and evaluated[t.key].meets]
    for other in met:
        if _score(one) >= _score(other) or _overlap(one, other):
            index = evaluated[other.key].index
            return f"not evaluated: no better than trial {index}, which met"
    if result.status.stopped:
        return "not evaluated: the search ended before its turn"
    return "not evaluated: hardly more exact than one that missed"


def _overlap(one: Trial, other: Trial) -> bool:
    if one.time_high is None or other.time_low is None:
        return False
    return one.time_high >= other.time_low
