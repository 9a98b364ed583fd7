"""Sections of what was measured of a quantized model; all kinds of pages share them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from octavo.report.html.layers import layer_table
from octavo.report.html.parts import (
    FIGURE,
    NAME,
    Cell,
    Column,
    Section,
    Table,
    bars,
    filled,
    latency,
)
from octavo.report.html.pictures import errors_picture
from octavo.report.html.ranges import ranges_table
from octavo.report.html.verdict import ORT_NAME, least_agreement
from octavo.results.benchmark import CONFIDENCE, Pair, Timed, Verdict, conditions, rate, times
from octavo.results.comparison import Comparison
from octavo.results.comparison_page import decibels
from octavo.results.evidence import FLOAT, ORT, QUANTIZED, Evidence
from octavo.results.judgement import worst_error, worst_output
from octavo.results.report import Report
from octavo.results.words import apart, clean, count, duration, number, padding, share, size

_NAMES = {FLOAT: "float", QUANTIZED: "quantized", ORT: ORT_NAME}
_VERDICTS = {
    Verdict.FASTER: ("faster", "good"),
    Verdict.SLOWER: ("slower", "bad"),
    Verdict.SAME: ("no difference", "dim"),
    Verdict.NOISY: ("too noisy to tell", "warn"),
}
_COLUMNS = (
    Column("model", NAME),
    Column("size", FIGURE, "bytes of the model's files"),
    Column("latency", FIGURE, "median time of a run"),
    Column(
        "time / float",
        FIGURE,
        f"the model's time over the float model's, with a {CONFIDENCE:.0%} interval",
    ),
    Column("per second", FIGURE, "runs a second, times the entries of a batch"),
    Column("load", FIGURE, "time until a session is open"),
    Column("memory", FIGURE, "peak that opening and one run add to a process"),
    Column(
        "error",
        FIGURE,
        "of the worst output: half the squared distance over the squared length",
    ),
    Column(
        "SQNR",
        FIGURE,
        "signal to quantization noise ratio of the worst output: the more, the better",
    ),
    Column(
        "top-1",
        FIGURE,
        "share of rows whose largest number is at the same place as in the float model",
    ),
)


def measured_sections(
    report: Report | None,
    evidence: Evidence | None,
    sizes: tuple[int | None, int | None],
    before_layers: Sequence[Section] = (),
    title: str = "Layers",
    untimed: str = "Nothing was timed.",
) -> Iterator[Section]:
    """Models beside each other, `before_layers`, errors, layers, their ranges; what there is.

    `untimed` is what a page says without a benchmark.
    """
    if evidence is not None:
        yield _beside_table(evidence, sizes, untimed)
    yield from before_layers
    found = None if evidence is None else evidence.comparison
    drawn = None if found is None else errors_picture(found)
    if drawn is not None:
        yield drawn
    layers = layer_table(report, evidence, title)
    if layers is not None:
        yield layers
    ranges = None if found is None else ranges_table(found, report)
    if ranges is not None:
        yield ranges


def measured_notes(evidence: Evidence | None) -> list[tuple[str, str]]:
    """Return the notes of the measurements: (what the note is about, the note) pairs."""
    if evidence is None:
        return []
    about = (
        ("The comparison", evidence.comparison),
        ("The timing", evidence.benchmark),
        (ORT_NAME, evidence.ort),
    )
    found = [(what, note) for what, part in about if part is not None for note in part.notes]
    outputs = evidence.comparison.outputs if evidence.comparison is not None else ()
    return found + [(f"Output {output.name}", output.note) for output in outputs if output.note]


@dataclass(frozen=True)
class _Model:
    """One row: what was measured of one model (on inputs of one shape, by some threads)."""

    name: str
    timed: Timed | None
    pair: Pair | None
    bytes: int | None
    comparison: Comparison | None
    where: str = ""


def _beside_table(evidence: Evidence, sizes: tuple[int | None, int | None], untimed: str) -> Table:
    """Build a table of one row a model.

    `sizes` are the bytes of float and quantized model, for want of others.
    """
    models = list(_models(evidence, sizes))
    rows = [(_named(m, evidence), *cells) for m, cells in zip(models, _rows(models), strict=True)]
    named = any(model.name == ORT for model in models)
    return Table(
        "beside",
        "Beside float and ONNX Runtime" if named else "Beside float",
        *filled(_COLUMNS, rows),
        "models",
        intro=" ".join(_intro(evidence, models, untimed)),
        how=" ".join(_how(models)),
        remarks=tuple(clean(note) for note in evidence.notes),
    )


def _models(evidence: Evidence, sizes: tuple[int | None, int | None]) -> Iterator[_Model]:
    found = evidence.benchmark
    timed = {(t.name, t.shape, t.threads): t for t in found.models} if found else {}
    pairs = {(p.b, p.shape, p.threads): p for p in found.rows if p.a == FLOAT} if found else {}
    places: list[tuple[str, int | None]] = [*dict.fromkeys(key[1:] for key in timed)]
    known = {FLOAT: sizes[0], QUANTIZED: sizes[1], ORT: None}
    compared = {FLOAT: None, QUANTIZED: evidence.comparison, ORT: evidence.ort}
    for place in places or [("", None)]:
        where = conditions(*place) if len(places) > 1 else ""
        for name in (FLOAT, QUANTIZED, ORT):
            one = timed.get((name, *place))
            if name == ORT and one is None and evidence.ort is None:
                continue
            taken = known[name] if one is None or one.bytes is None else one.bytes
            yield _Model(name, one, pairs.get((name, *place)), taken, compared[name], where)


def _named(model: _Model, evidence: Evidence) -> Cell:
    found, file = evidence.comparison, ""
    if found is not None and model.name != ORT:
        file = clean(found.float_model if model.name == FLOAT else found.quantized_model)
    if model.name == ORT:
        file = "with its defaults"
    return Cell(_NAMES[model.name], detail=", ".join(filter(None, (file, model.where))))


def _rows(models: Sequence[_Model]) -> Iterable[tuple[Cell, ...]]:
    """Return the cells of each model's row, without the model's name."""
    timed = [m.timed for m in models]
    pairs = [m.pair for m in models]
    length = bars([1.0, *(pair.ratio for pair in pairs if pair is not None)])
    compared = [m.comparison for m in models]
    return zip(
        _figures([m.bytes for m in models], size),
        [Cell("") if t is None else _latency(t) for t in timed],
        [Cell("") if pair is None else _ratio(pair, length) for pair in pairs],
        [Cell("") if t is None else Cell(rate(t.per_second), t.per_second) for t in timed],
        _figures([t.load_seconds if t else None for t in timed], latency),
        _figures([t.peak_memory if t else None for t in timed], size),
        _errors(compared),
        map(_sqnr, compared),
        map(_agreement, compared),
        strict=True,
    )


def _figures(values: Sequence[float | int | None], text: Callable[..., str]) -> list[Cell]:
    length = bars(values)
    return [Cell("") if v is None else Cell(text(v), v, bar=length(v)) for v in values]


def _latency(timed: Timed) -> Cell:
    return Cell(latency(timed.seconds), timed.seconds, detail=f"spread {timed.spread:.1%}")


def _ratio(pair: Pair, length: Callable[[float], float | None]) -> Cell:
    mark, tone = _VERDICTS[pair.verdict]
    bounds = f"{times(pair.low)} to {times(pair.high)}"
    return Cell(times(pair.ratio), pair.ratio, tone, mark, detail=bounds, bar=length(pair.ratio))


def _errors(compared: Sequence[Comparison | None]) -> Iterator[Cell]:
    length = bars(map(worst_error, compared))
    for found in compared:
        error, worst = worst_error(found), worst_output(found)
        if error is None or worst is None or worst.difference is None:
            yield Cell("")
        elif not math.isfinite(error):
            yield Cell("not finite", error, tone="bad")
        else:
            cosine = worst.difference.cosine
            detail = apart(None if cosine is None else max(0.0, 1 - cosine), error)
            yield Cell(number(error), error, detail=detail, bar=length(error))


def _sqnr(found: Comparison | None) -> Cell:
    worst = worst_output(found)
    difference = None if worst is None else worst.difference
    if difference is None or difference.non_finite:
        return Cell("")
    return Cell(decibels(difference), difference.sqnr_db)


def _agreement(found: Comparison | None) -> Cell:
    least = least_agreement(found)
    return Cell("") if least is None else Cell(share(least), least)


def _intro(evidence: Evidence, models: Sequence[_Model], untimed: str) -> Iterator[str]:
    found, compared = evidence.benchmark, evidence.comparison
    if found is not None and found.models:
        first = found.models[0]
        place = "" if any(m.where for m in models) else conditions(first.shape, first.threads)
        if first.threads is None:
            place = ", ".join(filter(None, (place, "threads as the runtime chooses")))
        on = f" on {clean(found.machine)}" if found.machine else ""
        yield f"Timed for {duration(found.seconds)}{on}{f', {place}' if place else ''}."
    else:
        yield untimed
    if compared is not None:
        runs = count(compared.runs, "run")
        left_out = padding(compared.padding)
        yield f"Outputs compared over {runs} on inputs {clean(compared.inputs)}{left_out}."
    else:
        yield "Outputs were not compared."


def _how(models: Sequence[_Model]) -> Iterator[str]:
    if any(m.name == ORT for m in models):
        yield f"{ORT_NAME} is what its quantize_dynamic makes by default, with one scale a tensor."
    if any(m.pair is not None for m in models):
        yield f"Time over float is given with its {CONFIDENCE:.0%} interval, timed in turns."
    if any(m.comparison is not None for m in models):
        yield (
            "Error is that of the worst output: half the squared distance over the squared length, "
            "which for small errors is 1 - cosine."
        )
    yield "Bars: the shorter, the better."
