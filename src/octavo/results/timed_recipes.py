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
    """Return the table's title: whether recipes were timed, or only weighed."""
    return TITLE if any(one.time_ratio is not None for one in result.timed) else WEIGHED


def timed_recipes(result: TuneResult) -> Iterator[tuple[str, ...]]:
    """Yield a row for each recipe that was timed, the one with the best objective first."""
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
    return f"not evaluated: {_why_not(one, evaluated, result)}"


def _why_not(one: Trial, evaluated: dict[str, Trial], result: TuneResult) -> str:
    """Say what decided so, as the search recorded it."""
    if one.left_out is None:
        return "the search ended before its turn"
    if one.left_out is one.left_out.NO_GAIN:
        return "no better than the float model"
    if one.left_out is one.left_out.NO_NEARER:
        return "hardly more exact than one that missed"
    met = [evaluated[t.key] for t in result.timed if t.key in evaluated]
    first = min((t for t in met if t.meets), key=lambda t: t.index, default=None)
    which = "one" if first is None else f"trial {first.index}"
    if one.score is None:
        return f"{which}, named before it, met, and there was no time to time both"
    return f"no better than {which}, which met"
