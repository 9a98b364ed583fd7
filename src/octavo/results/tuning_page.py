"""A tuning run as text for people.

model.onnx
Met: Trial 2 (int8, 1 of 12 layers float: fc3) keeps the criterion: at most 1% of ... lost.

Accuracy  0.915 -> 0.912 (loss 0.33% of at most 1%)
Latency   8.10 ms -> 4.20 ms a run (1.92x as fast)
...
trial  recipe                accuracy   loss  latency  time     size  result
float  the float model          0.915         8.10 ms  1.00  90.4 MB
    1  int8, all 12 layers     0.8312  9.16%  4.05 ms  0.50  22.5 MB  missed
...
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from octavo.results import trial_words as say
from octavo.results import words
from octavo.results.names import shortened
from octavo.results.page import Part, Table, columns, facts, indented, line, noted
from octavo.results.report_page import needs
from octavo.results.timed_recipes import FIGURES, HEADINGS, timed_recipes, title
from octavo.results.words import clean, count, duration, size

if TYPE_CHECKING:
    from octavo.results.tuning import Trial, TuneResult

STYLES = {"best": "bold green", "met": "green", "nearest": "bold yellow", "failed": "bold red"}
_WORST = 5  # layers of the ranking that are shown


def trial_table(
    trials: Sequence[Trial], best: int, bound: say.Bound, without: Collection[str] = ()
) -> Table:
    """Build a table of one row a trial; `best` is the index of the trial that is marked.

    `without` names columns of figures that are left out.
    """
    figures = [c for c in say.figures(trials, bound) if c.heading not in without]
    names = [figure.heading for figure in figures]
    table = columns("trial", "recipe", *names, "result", right=["trial", *names])
    for trial in trials:
        mark = say.outcome(trial, trial.index == best)
        table.add_row(
            str(trial.index) if trial.index else "float",
            say.brief_recipe(trial),
            *(figure.text(trial) for figure in figures),
            line(mark, style=STYLES.get(mark, "")),
        )
    return table


def tuning_page(result: TuneResult) -> Iterator[Part]:
    """Yield how the search ended, what the search found, and its trials."""
    yield line(clean(result.model), style="bold")
    heading, sentence = verdict(result)
    good = result.status.met and not result.gains_nothing
    style = "bold green" if good else "bold yellow"
    yield line((heading, style), f": {sentence}")
    yield line("")
    yield facts(_facts(result))
    yield line("")
    trials = (result.baseline, *result.trials)
    yield trial_table(trials, result.best.index, bound_of(result))
    if any(trial.time_ratio is not None for trial in trials):
        said = f"{say.RATIO}: of a run, over the float model's, both timed in turns"
        yield line(said, style="dim")
    yield line("")
    yield from _timed(result)
    yield from _ranking(result)
    if result.notes:
        yield from noted([clean(note) for note in result.notes])
        yield line("")
    yield from _failed(result)


def _facts(result: TuneResult) -> Iterator[tuple[str, str]]:
    best, base = result.best, result.baseline
    pair = _pair(say.accuracy(base.accuracy), say.accuracy(best.accuracy))
    loss = lost(result, best) if best.index else ""
    noun = "Agreement" if result.status.agreement_only else "Accuracy"
    yield noun, pair + (f" ({loss})" if loss else "")
    if best.latency is not None and best.time_ratio is not None:
        floating = say.float_seconds((base, *result.trials))
        pair = _pair(words.latency(floating), words.latency(say.seconds_of(best, floating)))
        yield "Latency", f"{pair} a run" + (f" ({say.versus_float(best)})" if best.index else "")
    if result.timed_inputs:
        yield "Timed", f"a run of {result.timed_inputs}"
    if result.native_ratio:
        yield "Native", native_gain(result.native_ratio)
    if best.bytes is not None and base.bytes is not None:
        ratio = words.ratio(base.bytes, best.bytes)
        yield "Size", f"{size(base.bytes)} -> {size(best.bytes)} ({ratio})"
    if best.peak_memory is not None and base.peak_memory is not None:
        yield "Memory", f"{size(base.peak_memory)} -> {size(best.peak_memory)} at the peak"
    runs = f" and {count(result.model_runs, 'model run')}" if result.model_runs else ""
    tried = f"{count(len(result.trials), 'trial')}{runs} in {duration(result.seconds)}"
    yield "Search", f"{clean(result.strategy)}, objective {clean(result.objective)}: {tried}"
    if result.stop is not None:
        yield "Ended", why_ended(result)
    if result.report is not None:
        yield from needs(result.report)
    yield "Wrote", clean(result.output) or "nothing"


def native_gain(ratio: float) -> str:
    """Say what target native would give; `ratio` is its time over the float model's."""
    return (
        f"{1 / ratio:.2f}x as fast with target native, whose files need octavo.onnx.session; "
        "search with it to measure its accuracy"
    )


def why_ended(result: TuneResult) -> str:
    """Say why the search ended; nothing where that is not known."""
    stop, more = result.stop, "; give a timeout (tuning.exit_policy.timeout) to search on"
    if stop is None:
        return ""
    first = stop is stop.FIRST_MET
    if stop is stop.ENDED and result.status.met and result.timeout == 0:
        if [trial.index for trial in result.trials if trial.meets] != [result.trials[-1].index]:
            return f"by itself (timeout 0){more}"
        first = True
    if first:
        return f"at the first recipe that met the criterion (timeout 0){more}"
    return {
        stop.ENDED: "by itself: nothing was left that promised more",
        stop.MAX_TRIALS: "at the largest number of trials (max_trials)",
        stop.TIME: "at the timeout",
        stop.INTERRUPTED: "by Ctrl-C",
    }[stop]


def _pair(before: str, after: str) -> str:
    return " -> ".join(filter(None, (before, after))) or "not measured"


def _timed(result: TuneResult) -> Iterator[Part]:
    rows = [*timed_recipes(result)]
    if not rows:
        return
    yield line(title(result), style="bold")
    shown = [at for at in range(len(HEADINGS)) if any(row[at] for row in rows)]
    names = [HEADINGS[at] for at in shown]
    table = columns(*names, right=[name for name in names if name in FIGURES])
    for row in rows:
        table.add_row(*(row[at] for at in shown))
    yield table
    yield line("")


def _ranking(result: TuneResult) -> Iterator[Part]:
    if not result.ranking:
        return
    ranked = count(len(result.ranking), "layer")
    runs = f", {count(result.model_runs, 'model run')}" if result.model_runs else ""
    yield line(f"Most sensitive of {ranked} (the output's error{runs})", style="bold")
    table = columns("   error", "layer", right=("   error",))
    worst = result.ranking[:_WORST]
    for name, (_, error) in zip(shortened([n for n, _ in worst]), worst, strict=True):
        table.add_row(words.number(error), words.name(name))
    yield table
    yield line("")


def _failed(result: TuneResult) -> Iterator[Part]:
    found = say.failures((result.baseline, *result.trials))
    if not found:
        return
    yield line("Failed", style="bold red")
    for error, trials in found:
        yield indented(f"{_numbers(trials)}: {say.last_of(error)}", 4, "-")
    yield line("")
    yield line("Tracebacks", style="bold")
    for error, trials in found:
        yield indented(f"{_numbers(trials)}:")
        yield from (indented(text, 4) for text in say.traceback_lines(error))
    yield line("")


def _numbers(trials: Sequence[Trial]) -> str:
    if not trials[0].index:
        return "the float model"
    listed = words.names([str(trial.index) for trial in trials], 5)
    return f"trial{'' if len(trials) == 1 else 's'} {listed}"


def bound_of(result: TuneResult) -> say.Bound:
    """Return how the losses of `result` are written."""
    return say.Bound(result.bound, result.relative)


def lost(result: TuneResult, trial: Trial) -> str:
    """Say what a trial lost or gained; nothing where there is no number.

    For example `loss 0.33% of at most 1%` or `gained 0.8%, at least 2% asked`.
    """
    bound = bound_of(result)
    if trial.loss is None:
        return ""
    if trial.loss < 0:
        gained = f"gained {say.Bound(None, bound.relative).loss(-trial.loss)}"
        asked = result.bound is not None and result.bound < 0
        return gained + (f", at least {bound.gain} asked" if asked else "")
    if result.bound is not None and result.bound < 0:
        return f"loss {bound.loss(trial.loss)}, a gain of at least {bound.gain} asked"
    return f"loss {bound.loss(trial.loss)}" + (f" of at most {bound.text}" if bound.text else "")


NO_GAIN = "met, but nothing gained"


def _without_gain(result: TuneResult) -> str:
    """Say what is not gained, and what would gain."""
    native, objective = result.native_ratio, clean(result.objective)
    said = f"by the objective ({objective}) it is no better than the float model"
    if native is not None and native < 1:
        said += f"; --target native would be {1 / native:.2f}x as fast"
    return said


def verdict(result: TuneResult) -> tuple[str, str]:
    """Say how the search ended, in a word and in a sentence."""
    best, criterion = say.recipe(result.best), clean(result.criterion)
    heading = result.status.value.capitalize()
    if result.status.met:
        sentence = f"Trial {result.best.index} ({best}) keeps the criterion: {criterion}."
        if result.status.agreement_only:
            sentence += (
                " No accuracy was measured: agreement with the float model stands in for it."
            )
        if result.gains_nothing:
            heading = NO_GAIN.capitalize()
            sentence += f" But {_without_gain(result)}."
        return heading, sentence
    return heading, f"{_ended(result)} {_nearest(result)} The criterion: {criterion}."


def _ended(result: TuneResult) -> str:
    if not result.status.stopped:
        return "No recipe met the criterion."
    how = "The time was up" if result.status.timed_out else "The search was interrupted"
    return f"{how} {_after(result)}."


def _after(result: TuneResult) -> str:
    return f"after {count(len(result.trials), 'trial')} in {duration(result.seconds)}"


def _nearest(result: TuneResult) -> str:
    best = result.best
    if best.index == 0:
        return "No trial gave an accuracy: the float model stays."
    what = f"trial {best.index} ({say.recipe(best)})"
    if best.meets:
        return f"The best so far, {what}, meets the criterion."
    none = "No recipe met the criterion so far. " if result.status.stopped else ""
    return f"{none}The nearest is {what}."


def last_line(result: TuneResult) -> str:
    """Return the last line that the command prints.

    The line has the status, recipe, accuracy, what was written, and what to do where that is not
    all.
    """
    best, written = result.best, f"wrote {clean(result.output)}"
    start = NO_GAIN if result.gains_nothing else result.status.value
    if result.status.stopped:
        start += f" {_after(result)}"
    if not result.status.met:
        start += ": " + _standing(result)
    end = written if result.output else "nothing was written"
    more = "; --resume continues the search" if result.status.stopped else ""
    if not result.status.met and not more:
        more = f"; {_advice(result)}"
    if result.gains_nothing:
        more = f"; {_without_gain(result)}"
    if result.trials and all(trial.failed for trial in result.trials):
        more = "; mend what failed"
    return f"{start}{'' if best.index == 0 else f': {_found(result)}'}; {end}{more}"


def _advice(result: TuneResult) -> str:
    """Say what to do where no recipe met the criterion."""
    if result.bound is not None and result.bound < 0:
        return (
            "the criterion asks for more accuracy than the float model's, which quantization "
            "rarely gives: ask for a loss of 0 or more"
        )
    return "allow a larger loss, or begin with a more accurate --recipe"


def _standing(result: TuneResult) -> str:
    if result.best.meets and result.best.index:
        return "the best so far meets the criterion"
    missed = f"no recipe met the criterion ({clean(result.criterion)})"
    return f"{missed}; {'no trial gave an accuracy' if result.best.index == 0 else 'the nearest'}"


def _found(result: TuneResult) -> str:
    best, base = result.best, result.baseline
    noun = "agreement" if result.status.agreement_only else "accuracy"
    compared = f"float {say.accuracy(base.accuracy)}" if base.accuracy is not None else ""
    against = ", ".join(filter(None, (compared, lost(result, best))))
    measured = f"{noun} {say.accuracy(best.accuracy) or 'unknown'}"
    said = f"{_bracketed(say.recipe(best))}: {measured}" + (f" ({against})" if against else "")
    if best.time_ratio is not None and best.time_ratio > 1:
        how = say.versus_float(best)
        said += f"; {how}{' as float' if how.startswith('takes') else ' from float'}"
    return said


def _bracketed(text: str) -> str:
    """Put what follows a colon in brackets: `int8, 1 of 12 layers float (fc3)`.

    A colon would be one too many on the line.
    """
    if text.count(": ") != 1:
        return text
    what, _, which = text.partition(": ")
    return f"{what} ({which})"
