"""The trials of a search as sections of a page: a picture, a table, and those that failed."""

from __future__ import annotations

from octavo.report.html.figures import sortable
from octavo.report.html.parts import FIGURE, KEY, Cell, Column, Picture, Table, Traces
from octavo.report.html.plot import Axes, Point, plot
from octavo.results import trial_words as say
from octavo.results import words
from octavo.results.tuning import Trial, TuneResult
from octavo.results.tuning_page import bound_of
from octavo.results.words import clean, count

_TONES = {"best": "good", "met": "good", "missed": "warn", "nearest": "warn", "failed": "bad"}
_TRACES = 20  # different tracebacks that are shown
_TRACE_LINES = 100  # of one traceback, its end


def trials_picture(result: TuneResult) -> Picture | None:
    """Accuracy against time; against size where no quantized model was timed."""
    base = result.baseline
    timed = any(trial.time_ratio is not None for trial in result.trials)
    axes = Axes(
        x_label=f"{'time a run' if timed else 'size'}, of the float model's (1 is the same)",
        y_label="accuracy" + ("" if result.higher_is_better else " (less is better)"),
        y_falls=not result.higher_is_better,
        limit=_limit(result),
        reference=base.accuracy,
    )
    points = []
    for trial in (base, *result.trials):
        x = trial.time_ratio if timed else _size_ratio(trial, base)
        if trial.index == 0:
            x = 1.0
        if x is not None and trial.accuracy is not None:
            mark = say.outcome(trial, trial.index == result.best.index) or "float"
            points.append(Point(x, trial.accuracy, mark, _tooltip(result, trial)))
    wide, narrow = plot(points, axes, 860, 400), plot(points, axes, 360, 320)
    if wide is None or narrow is None:
        return None
    what = "time" if timed else "size"
    intro = f"Each trial's accuracy against its {what}: up and to the left is better."
    if wide.beyond:
        intro += f" {count(wide.beyond, 'trial')} far below the criterion: at the lower edge."
    return Picture("picture", f"Accuracy against {what}", wide, narrow, intro=intro)


def trials_table(result: TuneResult) -> Table:
    """A row a trial, the float model first."""
    trials = (result.baseline, *result.trials)
    columns = say.figures(trials, bound_of(result))
    rows = []
    for trial in trials:
        mark = say.outcome(trial, trial.index == result.best.index)
        rows.append(
            (
                Cell(str(trial.index) if trial.index else "float", trial.index),
                Cell(say.recipe(trial)),
                *(
                    Cell(c.text(trial).replace(" us", " µs"), sortable(c.value(trial)))
                    for c in columns
                ),
                Cell(mark, tone=_TONES.get(mark, "")),
            )
        )
    headings = (
        Column("trial", KEY),
        Column("recipe"),
        *(Column(column.heading, FIGURE) for column in columns),
        Column("result"),
    )
    intro = f"The criterion: {clean(result.criterion)}."
    if any(column.heading == say.RATIO for column in columns):
        intro += " Time is that of a run over the float model's, both timed in turns."
    return Table("trials", "Trials", headings, tuple(rows), "rows", intro=intro)


def failed_trials(result: TuneResult) -> Traces | None:
    """Each traceback once, with its trials; None where none failed."""
    failed = say.failures((result.baseline, *result.trials))
    items = []
    for error, trials in failed[:_TRACES]:
        numbers = words.names([str(t.index) if t.index else "float" for t in trials], 8)
        lines = say.traceback_lines(error, _TRACE_LINES)
        plural = "" if len(trials) == 1 else "s"
        items.append((f"trial{plural} {numbers}: {say.last_of(error)}", "\n".join(lines)))
    more = len(failed) - len(items)
    intro = f"{count(more, 'further traceback')} not shown." if more else ""
    return Traces("failed", "Failed trials", tuple(items), intro=intro) if items else None


def _limit(result: TuneResult) -> float | None:
    """The accuracy that just meets the criterion."""
    reference = result.baseline.accuracy
    if reference is None or result.bound is None:
        return None
    allowance = result.bound * (abs(reference) if result.relative else 1.0)
    return reference - allowance if result.higher_is_better else reference + allowance


def _size_ratio(trial: Trial, base: Trial) -> float | None:
    return trial.bytes / base.bytes if trial.bytes is not None and base.bytes else None


def _tooltip(result: TuneResult, trial: Trial) -> str:
    figures = say.figures((trial,), bound_of(result))
    said = ", ".join(f"{c.heading} {c.text(trial)}" for c in figures)
    name = f"trial {trial.index}: {_short(say.recipe(trial))}" if trial.index else "the float model"
    return f"{name}\n{said}"


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[:limit] + " ..."
