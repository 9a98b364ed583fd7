"""A tuning run, and what was measured of its result, as a page for a browser."""

from __future__ import annotations

import math
from collections.abc import Iterator

from octavo.report.html.evidence import measured_notes, measured_sections
from octavo.report.html.parts import (
    FIGURE,
    KEY,
    Bar,
    Bars,
    Cell,
    Column,
    Facts,
    Notes,
    Page,
    Section,
    Table,
    Tile,
    Traces,
    latency,
    share,
    sortable,
)
from octavo.report.html.pictures import trials_picture
from octavo.report.html.render import page_data, render
from octavo.report.html.verdict import (
    error_tiles,
    measured_verdict,
    size_tile,
    speed_tile,
)
from octavo.results import trial_words as say
from octavo.results import words
from octavo.results.evidence import Evidence
from octavo.results.timed_recipes import FIGURES, HEADINGS, timed_recipes, title
from octavo.results.tuning import Status, TuneResult
from octavo.results.tuning_page import bound_of, lost, native_gain, verdict, why_ended
from octavo.results.words import clean, count, duration, size


def tuning_html(result: TuneResult, evidence: Evidence | None = None) -> str:
    """Return the run, and evidence of its best model, as one self-contained HTML document.

    OptionError where jinja2 is missing.
    """
    return render(_page(result, evidence))


def _page(result: TuneResult, evidence: Evidence | None) -> Page:
    heading, sentence = verdict(result)
    measured = "" if evidence is None else measured_verdict(evidence, *_sizes(result))
    return Page(
        title=f"{clean(result.model)}: tuning",
        subject=clean(result.model),
        heading=heading,
        sentence=" ".join(filter(None, (sentence, measured))),
        good=result.status.met and not result.gains_nothing,
        tiles=tuple(_tiles(result, evidence)),
        sections=tuple(_sections(result, evidence)),
        data=page_data(result=result, evidence=evidence),
    )


def _sizes(result: TuneResult) -> tuple[int | None, int | None]:
    return result.baseline.bytes, result.best.bytes


def _tiles(result: TuneResult, evidence: Evidence | None) -> Iterator[Tile]:
    best, base = result.best, result.baseline
    noun = "Agreement" if result.status is Status.MET_AGREEMENT else "Accuracy"
    measured = f"float {say.accuracy(base.accuracy) or 'not measured'}"
    detail = ", ".join(filter(None, (measured, lost(result, best) if best.index else "")))
    yield Tile(noun, say.accuracy(best.accuracy) or "unknown", detail)
    speed = None if evidence is None else speed_tile(evidence)
    yield speed if speed is not None else _latency(result)
    if best.bytes is not None and base.bytes:
        yield size_tile(base.bytes, best.bytes)
    elif best.bytes is not None:
        yield Tile("Size", size(best.bytes))
    if evidence is not None:
        yield from error_tiles(evidence)
    if best.layers:
        done = best.quantized / best.layers
        yield Tile("Quantized", f"{best.quantized:,} of {best.layers:,}", "layers", share(done))
    runs = f"{count(result.model_runs, 'model run')}, " if result.model_runs else ""
    yield Tile("Search", count(len(result.trials), "trial"), runs + duration(result.seconds))


def _latency(result: TuneResult) -> Tile:
    best, base = result.best, result.baseline
    if best.latency is None or best.time_ratio is None:
        return Tile("Latency", "not measured", "the objective does not ask for it")
    floating = say.float_seconds((base, *result.trials))
    versus = f"{say.versus_float(best)}, " if best.index else ""
    detail = f"{versus}float {latency(floating)}"
    return Tile("Latency", latency(say.seconds_of(best, floating)), detail, share(best.time_ratio))


def _sections(result: TuneResult, evidence: Evidence | None) -> Iterator[Section]:
    picture = trials_picture(result)
    if picture is not None:
        yield picture
    yield trials_table(result)
    if result.timed:
        yield _timed_table(result)
    ranked = [_ranking(result)] if result.ranking else []
    title = "Layers of the best model"
    searched = result.best.time_ratio is not None
    untimed = "Times are those of the search." if searched else "Nothing was timed."
    yield from measured_sections(result.report, evidence, _sizes(result), ranked, title, untimed)
    failed = failed_trials(result)
    if failed is not None:
        yield failed
    notes = [("", note) for note in result.notes] + measured_notes(evidence)
    if notes:
        yield Notes("notes", "Notes", tuple((clean(what), clean(note)) for what, note in notes))
    yield Facts("run", "This run", tuple(_facts(result)))


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


def _facts(result: TuneResult) -> Iterator[tuple[str, str]]:
    yield "Model", clean(result.model)
    yield "Criterion", clean(result.criterion)
    yield "Objective", clean(result.objective)
    yield "Strategy", clean(result.strategy)
    yield "Best recipe", say.recipe(result.best)
    yield "Status", result.status.value
    yield "Took", duration(result.seconds)
    if result.stop is not None:
        yield "Ended", why_ended(result)
    if result.timed_inputs:
        yield "Timed", f"a run of {result.timed_inputs}"
    if result.native_ratio:
        yield "Native", native_gain(result.native_ratio)
    yield "Wrote", clean(result.output) or "nothing"


_TONES = {"best": "good", "met": "good", "missed": "warn", "nearest": "warn", "failed": "bad"}
_TRACES = 20  # different tracebacks that are shown
_TRACE_LINES = 100  # of one traceback, its end


def trials_table(result: TuneResult) -> Table:
    """Build the table of trials, a row each, the float model first."""
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


def _timed_table(result: TuneResult) -> Table:
    """Build the table of whole recipes that were timed before any was evaluated, a row each."""
    rows = tuple(tuple(Cell(text) for text in row) for row in timed_recipes(result))
    headings = tuple(Column(n, FIGURE) if n in FIGURES else Column(n) for n in HEADINGS)
    return Table("timed", "Whole recipes", headings, rows, "rows", intro=f"{title(result)}.")


def failed_trials(result: TuneResult) -> Traces | None:
    """Return each traceback once, with its trials; None where no trial failed."""
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
