"""A tuning run as a page for a browser."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from octavo.recipe.evidence import Evidence
from octavo.recipe.tuning import Status, Trial, TuneResult
from octavo.report import text as words
from octavo.report import tuning_words as say
from octavo.report.html.layers import layer_table
from octavo.report.html.parts import (
    Bar,
    Bars,
    Cell,
    Facts,
    Notes,
    Page,
    Picture,
    Section,
    Table,
    Tile,
    Traces,
)
from octavo.report.html.plot import Axes, Point, plot
from octavo.report.html.render import render
from octavo.report.text import clean, count, duration, size
from octavo.report.tuning_verdict import bound_of, lost, verdict

_TONES = {"best": "good", "met": "good", "missed": "warn", "nearest": "warn", "failed": "bad"}
_TRACES = 20  # different tracebacks that are shown
_TRACE_LINES = 100  # of one traceback, its end


def tuning_html(result: TuneResult, evidence: Evidence | None = None) -> str:
    """The run as one self-contained HTML document; OptionError where jinja2 is missing."""
    return render(_page(result))


def page_data(result: TuneResult) -> dict[str, Any]:
    """What the page embeds: `result` as JSON has it, made small enough for a page.

    The best trial's recipe is whole, those of `trials` are left out (null); of tracebacks only the
    last line is kept. Numbers that are not finite are null.
    """
    small = replace(
        result,
        best=_small(result.best),
        baseline=_small(result.baseline),
        trials=tuple(replace(_small(trial), recipe=None) for trial in result.trials),
    )
    data: dict[str, Any] = json.loads(small.to_json(indent=None))
    return data


def _small(trial: Trial) -> Trial:
    return replace(trial, error=say.last_of(trial.error))


def _page(result: TuneResult) -> Page:
    heading, sentence = verdict(result)
    return Page(
        title=f"{clean(result.model)}: tuning",
        subject=clean(result.model),
        heading=heading,
        sentence=sentence,
        good=result.status.met,
        tiles=tuple(_tiles(result)),
        sections=tuple(_sections(result)),
        data=page_data(result),
    )


def _tiles(result: TuneResult) -> Iterator[Tile]:
    best, base = result.best, result.baseline
    noun = "Agreement" if result.status is Status.MET_AGREEMENT else "Accuracy"
    measured = f"float {say.accuracy(base.accuracy) or 'not measured'}"
    detail = ", ".join(filter(None, (measured, lost(result, best) if best.index else "")))
    yield Tile(noun, say.accuracy(best.accuracy) or "unknown", detail)
    if best.latency is not None and best.time_ratio is not None:
        detail = f"{say.speed(best.time_ratio)}, float {_latency(base.latency)}"
        yield Tile("Latency", _latency(best.latency), detail, _share(best.time_ratio))
    else:
        yield Tile("Latency", "not measured", "the objective does not ask for it")
    if best.bytes is not None:
        detail, share = "", None
        if base.bytes:
            detail = f"{words.ratio(base.bytes, best.bytes)}, float {size(base.bytes)}"
            share = _share(best.bytes / base.bytes)
        yield Tile("Size", size(best.bytes), detail, share)
    if best.layers:
        share = best.quantized / best.layers
        yield Tile("Quantized", f"{best.quantized:,} of {best.layers:,}", "layers", _share(share))
    runs = f"{count(result.model_runs, 'model run')}, " if result.model_runs else ""
    yield Tile("Search", count(len(result.trials), "trial"), runs + duration(result.seconds))


def _share(x: float) -> float | None:
    return min(1.0, max(0.0, x)) if math.isfinite(x) else None


def _latency(seconds: float | None) -> str:
    return say.latency(seconds).replace(" us", " µs")


def _sections(result: TuneResult) -> Iterator[Section]:
    picture = _picture(result)
    if picture is not None:
        yield picture
    yield _trials(result)
    if result.ranking:
        yield _ranking(result)
    if result.report is not None:
        yield layer_table(result.report, "Layers of the best model")
    failed = say.failures((result.baseline, *result.trials))
    if failed:
        yield _failed(failed)
    if result.notes:
        yield Notes("notes", "Notes", tuple(("", clean(note)) for note in result.notes))
    yield Facts("run", "This run", tuple(_facts(result)))


def _picture(result: TuneResult) -> Picture | None:
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


def _trials(result: TuneResult) -> Table:
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
                    Cell(c.text(trial).replace(" us", " µs"), _finite(c.value(trial)))
                    for c in columns
                ),
                Cell(mark, tone=_TONES.get(mark, "")),
            )
        )
    headings = (
        ("trial", True),
        ("recipe", False),
        *((column.heading, True) for column in columns),
        ("result", False),
    )
    intro = f"The criterion: {clean(result.criterion)}."
    if any(column.heading == "ratio" for column in columns):
        intro += " Ratio is the time a run over the float model's, both timed in turns."
    return Table("trials", "Trials", headings, tuple(rows), "rows", intro=intro)


def _finite(x: float | int | None) -> float | int | None:
    return None if x is None or math.isnan(x) else x


def _ranking(result: TuneResult) -> Bars:
    """Bars are logarithmic: the errors of layers are decades apart."""
    positive = [e for _, e in result.ranking if 0 < e < math.inf]
    low, high = min(positive, default=1.0), max(positive, default=1.0)
    decades = max(math.log10(high / low), 1.0)
    left = {o.layer.name for o in result.report.left_float} if result.report else set()

    def length(error: float) -> float:
        if not 0 < error < math.inf:
            return 1.0 if error > 0 else 0.0
        return round(0.04 + 0.96 * (1 - math.log10(high / error) / decades), 3)

    bars = tuple(
        Bar(
            clean(name) or "(no name)",
            words.number(error),
            length(error),
            "float in the best model" if name in left else "",
        )
        for name, error in result.ranking
    )
    intro = (
        "The output's error when this layer alone is quantized, the worst first. "
        f"Found with {count(result.model_runs, 'model run')}; bars are logarithmic."
    )
    return Bars("ranking", "Sensitivity", bars, intro=intro)


def _failed(failed: list[tuple[str, list[Trial]]]) -> Traces:
    items = []
    for error, trials in failed[:_TRACES]:
        numbers = words.names([str(t.index) if t.index else "float" for t in trials], 8)
        lines = say.traceback_lines(error, _TRACE_LINES)
        plural = "" if len(trials) == 1 else "s"
        items.append((f"trial{plural} {numbers}: {say.last_of(error)}", "\n".join(lines)))
    more = len(failed) - len(items)
    intro = f"{count(more, 'further traceback')} not shown." if more else ""
    return Traces("failed", "Failed trials", tuple(items), intro=intro)


def _facts(result: TuneResult) -> Iterator[tuple[str, str]]:
    yield "Model", clean(result.model)
    yield "Criterion", clean(result.criterion)
    yield "Objective", clean(result.objective)
    yield "Strategy", clean(result.strategy)
    yield "Best recipe", say.recipe(result.best)
    yield "Status", result.status.value
    yield "Took", duration(result.seconds)
    yield "Wrote", clean(result.output) or "nothing"
