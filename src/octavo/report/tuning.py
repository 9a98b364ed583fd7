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

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from octavo.recipe.tuning import Status, Trial, TuneResult
from octavo.report import text as words
from octavo.report import tuning_words as say
from octavo.report.names import shortened
from octavo.report.text import clean, count, duration, size
from octavo.report.tuning_verdict import bound_of, last_line, lost, verdict

__all__ = ["STYLES", "last_line", "print_tuning", "trial_table", "tuning_text"]

STYLES = {"best": "bold green", "met": "green", "nearest": "bold yellow", "failed": "bold red"}
_WORST = 5  # layers of the ranking that are shown


def tuning_text(result: TuneResult) -> str:
    """The run as plain text."""
    return words.plain(list(_page(result)))


def print_tuning(result: TuneResult, console: Console) -> None:
    """Prints the run, as tables on a terminal."""
    words.show(list(_page(result)), console)


def trial_table(
    trials: Sequence[Trial], best: int, bound: say.Bound, without: Collection[str] = ()
) -> Table:
    """One row a trial; `best` is the index of the one that is marked.

    `without` names columns of figures that are left out.
    """
    columns = [c for c in say.figures(trials, bound) if c.heading not in without]
    names = [column.heading for column in columns]
    table = words.columns("trial", "recipe", *names, "result", right=["trial", *names])
    for trial in trials:
        mark = say.outcome(trial, trial.index == best)
        table.add_row(
            Text(str(trial.index) if trial.index else "float"),
            Text(say.recipe(trial)),
            *(Text(column.text(trial)) for column in columns),
            Text(mark, style=STYLES.get(mark, "")),
        )
    return table


def _page(result: TuneResult) -> Iterator[RenderableType]:
    yield Text(clean(result.model), style="bold")
    heading, sentence = verdict(result)
    style = "bold green" if result.status.met else "bold yellow"
    yield Text.assemble((heading, style), f": {sentence}")
    yield Text()
    yield words.facts(_facts(result))
    yield Text()
    trials = (result.baseline, *result.trials)
    yield trial_table(trials, result.best.index, bound_of(result))
    if any(trial.time_ratio is not None for trial in trials):
        said = f"{say.RATIO}: of a run, over the float model's, both timed in turns"
        yield Text(said, style="dim")
    yield Text()
    yield from _ranking(result)
    if result.notes:
        yield Text("Notes", style="bold")
        yield from (words.indented(clean(note), 4, "-") for note in result.notes)
        yield Text()
    yield from _failed(result)


def _facts(result: TuneResult) -> Iterator[tuple[str, str]]:
    best, base = result.best, result.baseline
    pair = _pair(say.accuracy(base.accuracy), say.accuracy(best.accuracy))
    loss = lost(result, best) if best.index else ""
    noun = "Agreement" if result.status is Status.MET_AGREEMENT else "Accuracy"
    yield noun, pair + (f" ({loss})" if loss else "")
    if best.latency is not None and best.time_ratio is not None:
        floating = say.float_seconds((base, *result.trials))
        pair = _pair(say.latency(floating), say.latency(say.seconds_of(best, floating)))
        yield "Latency", f"{pair} a run" + (f" ({say.versus_float(best)})" if best.index else "")
    if best.bytes is not None and base.bytes is not None:
        ratio = words.ratio(base.bytes, best.bytes)
        yield "Size", f"{size(base.bytes)} -> {size(best.bytes)} ({ratio})"
    if best.peak_memory is not None and base.peak_memory is not None:
        yield "Memory", f"{size(base.peak_memory)} -> {size(best.peak_memory)} at the peak"
    runs = f" and {count(result.model_runs, 'model run')}" if result.model_runs else ""
    tried = f"{count(len(result.trials), 'trial')}{runs} in {duration(result.seconds)}"
    yield "Search", f"{clean(result.strategy)}, objective {clean(result.objective)}: {tried}"
    yield "Wrote", clean(result.output) or "nothing"


def _pair(before: str, after: str) -> str:
    return " -> ".join(filter(None, (before, after))) or "not measured"


def _ranking(result: TuneResult) -> Iterator[RenderableType]:
    if not result.ranking:
        return
    ranked = count(len(result.ranking), "layer")
    runs = f", {count(result.model_runs, 'model run')}" if result.model_runs else ""
    yield Text(f"Most sensitive of {ranked} (the output's error{runs})", style="bold")
    table = words.columns("   error", "layer", right=("   error",))
    worst = result.ranking[:_WORST]
    for name, (_, error) in zip(shortened([n for n, _ in worst]), worst, strict=True):
        table.add_row(Text(words.number(error)), Text(clean(name) or "(no name)"))
    yield table
    yield Text()


def _failed(result: TuneResult) -> Iterator[RenderableType]:
    found = say.failures((result.baseline, *result.trials))
    if not found:
        return
    yield Text("Failed", style="bold red")
    for error, trials in found:
        yield words.indented(f"{_numbers(trials)}: {say.last_of(error)}", 4, "-")
    yield Text()
    yield Text("Tracebacks", style="bold")
    for error, trials in found:
        yield words.indented(f"{_numbers(trials)}:")
        yield from (words.indented(line, 4) for line in say.traceback_lines(error))
    yield Text()


def _numbers(trials: Sequence[Trial]) -> str:
    if not trials[0].index:
        return "the float model"
    listed = words.names([str(trial.index) for trial in trials], 5)
    return f"trial{'' if len(trials) == 1 else 's'} {listed}"
