"""How a search ended, in a word, in a sentence and in the last line of the command."""

from __future__ import annotations

from octavo.recipe.tuning import Status, Trial, TuneResult
from octavo.report.text import clean, count, duration
from octavo.report.tuning_words import Bound, accuracy, recipe, versus_float

_RESUME = "; --resume continues the search"
_ADVICE = {
    Status.BEST_EFFORT: "; allow a larger loss, or begin with a more accurate --recipe",
    Status.TIMED_OUT: _RESUME,
    Status.INTERRUPTED: _RESUME,
}


def bound_of(result: TuneResult) -> Bound:
    """How the losses of `result` are written."""
    return Bound(result.bound, result.relative)


def lost(result: TuneResult, trial: Trial) -> str:
    """`loss 0.33% of at most 1%`; nothing where there is no number."""
    bound = bound_of(result)
    if trial.loss is None:
        return ""
    return f"loss {bound.loss(trial.loss)}" + (f" of at most {bound.text}" if bound.text else "")


def verdict(result: TuneResult) -> tuple[str, str]:
    """How the search ended, in a word and in a sentence."""
    best, criterion = recipe(result.best), clean(result.criterion)
    heading = {
        Status.MET: "Met",
        Status.MET_AGREEMENT: "Met (agreement only)",
        Status.BEST_EFFORT: "Best effort",
        Status.TIMED_OUT: "Timed out",
        Status.INTERRUPTED: "Interrupted",
    }[result.status]
    if result.status is Status.MET:
        return heading, f"Trial {result.best.index} ({best}) keeps the criterion: {criterion}."
    if result.status is Status.MET_AGREEMENT:
        return heading, (
            f"Trial {result.best.index} ({best}) keeps the criterion: {criterion}. No accuracy was "
            "measured: agreement with the float model stands in for it."
        )
    return heading, f"{_ended(result)} {_nearest(result)} The criterion: {criterion}."


def _ended(result: TuneResult) -> str:
    after = f"after {count(len(result.trials), 'trial')} in {duration(result.seconds)}"
    return {
        Status.TIMED_OUT: f"The time was up {after}.",
        Status.INTERRUPTED: f"The search was interrupted {after}.",
    }.get(result.status, "No recipe met the criterion.")


def _nearest(result: TuneResult) -> str:
    best = result.best
    if best.index == 0:
        return "No trial gave an accuracy: the float model stays."
    what = f"trial {best.index} ({recipe(best)})"
    if best.meets:
        return f"The best so far, {what}, meets the criterion."
    none = "" if result.status is Status.BEST_EFFORT else "No recipe met the criterion so far. "
    return f"{none}The nearest is {what}."


def last_line(result: TuneResult) -> str:
    """The last line that the command prints: status, recipe, accuracy, what was written, and what
    to do where that is not all."""
    best, written = result.best, f"wrote {clean(result.output)}"
    start = result.status.value
    if result.status in (Status.TIMED_OUT, Status.INTERRUPTED):
        start += f" after {count(len(result.trials), 'trial')} in {duration(result.seconds)}"
    if not result.status.met:
        start += ": " + _standing(result)
    end = written if result.output else "nothing was written"
    more = "; mend what failed" if _all_failed(result) else _ADVICE.get(result.status, "")
    return f"{start}{'' if best.index == 0 else f': {_found(result)}'}; {end}{more}"


def _all_failed(result: TuneResult) -> bool:
    return bool(result.trials) and all(trial.failed for trial in result.trials)


def _standing(result: TuneResult) -> str:
    if result.best.meets and result.best.index:
        return "the best so far meets the criterion"
    missed = f"no recipe met the criterion ({clean(result.criterion)})"
    return f"{missed}; {'no trial gave an accuracy' if result.best.index == 0 else 'the nearest'}"


def _found(result: TuneResult) -> str:
    best, base = result.best, result.baseline
    noun = "agreement" if result.status is Status.MET_AGREEMENT else "accuracy"
    compared = f"float {accuracy(base.accuracy)}" if base.accuracy is not None else ""
    against = ", ".join(filter(None, (compared, lost(result, best))))
    measured = f"{noun} {accuracy(best.accuracy) or 'unknown'}"
    said = f"{_bracketed(recipe(best))}: {measured}" + (f" ({against})" if against else "")
    if best.time_ratio is not None and best.time_ratio > 1:
        how = versus_float(best)
        said += f"; {how}{' as float' if how.startswith('takes') else ' from float'}"
    return said


def _bracketed(words: str) -> str:
    """`int8, 1 of 12 layers float (fc3)`: a colon would be one too many on the line."""
    if words.count(": ") != 1:
        return words
    what, _, which = words.partition(": ")
    return f"{what} ({which})"
