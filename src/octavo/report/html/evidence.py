"""Sections of what was measured of a quantized model; all kinds of pages share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from octavo.report.html.layers import layer_table
from octavo.report.html.parts import FIGURE, NAME, Cell, Column, Section, Table, bars, latency
from octavo.report.html.ranges import ranges_table
from octavo.report.html.verdict import ORT_NAME, least_agreement, worst_error, worst_output
from octavo.results.benchmark import (
    CONFIDENCE,
    Benchmark,
    Pair,
    Timed,
    Verdict,
    conditions,
    rate,
    times,
)
from octavo.results.comparison import Comparison
from octavo.results.comparison_page import decibels
from octavo.results.evidence import FLOAT, ORT, QUANTIZED, Evidence
from octavo.results.report import Report
from octavo.results.words import clean, count, duration, number, size

_NAMES = {FLOAT: "float", QUANTIZED: "quantized", ORT: ORT_NAME}
_VERDICTS = {
    Verdict.FASTER: ("faster", "good"),
    Verdict.SLOWER: ("slower", "bad"),
    Verdict.SAME: ("no difference", "dim"),
    Verdict.NOISY: ("too noisy to tell", "warn"),
}


@dataclass(frozen=True)
class _Model:
    """One row: what was measured of one model (on inputs of one shape, by some threads)."""

    name: str
    timed: Timed | None
    pair: Pair | None
    bytes: int | None
    comparison: Comparison | None
    where: str = ""


_Part = tuple[Column, Callable[[_Model], Cell]]


def beside_table(evidence: Evidence, sizes: tuple[int | None, int | None] = (None, None)) -> Table:
    """One row a model. `sizes` are the bytes of float and quantized model, for want of others."""
    models = list(_models(evidence, sizes))
    parts = [*_cost_parts(models), *_error_parts(models)]
    cells = [tuple(cell(model) for _, cell in parts) for model in models]
    kept = [i for i in range(len(parts)) if any(row[i].text for row in cells)]
    named = any(model.name == ORT for model in models)
    return Table(
        "beside",
        "Beside float and ONNX Runtime" if named else "Beside float",
        (Column("model", NAME), *(parts[i][0] for i in kept)),
        tuple(
            (_named(model, evidence), *(row[i] for i in kept))
            for model, row in zip(models, cells, strict=True)
        ),
        "models",
        intro=" ".join(_intro(evidence, models)),
        how=" ".join(_how(models)),
        remarks=tuple(clean(note) for note in evidence.notes),
    )


def _models(evidence: Evidence, sizes: tuple[int | None, int | None]) -> Iterator[_Model]:
    found = evidence.benchmark
    places = dict.fromkeys((t.shape, t.threads) for t in found.models) if found else {}
    known = {FLOAT: sizes[0], QUANTIZED: sizes[1], ORT: None}
    compared = {FLOAT: None, QUANTIZED: evidence.comparison, ORT: evidence.ort}
    for place in places or [None]:
        for name in (FLOAT, QUANTIZED, ORT):
            timed = _timed(found, name, place)
            if name == ORT and timed is None and evidence.ort is None:
                continue
            taken = known[name] if timed is None or timed.bytes is None else timed.bytes
            where = conditions(*place) if place is not None and len(places) > 1 else ""
            yield _Model(name, timed, _pair(found, name, place), taken, compared[name], where)


def _timed(
    found: Benchmark | None, name: str, place: tuple[str, int | None] | None
) -> Timed | None:
    models = () if found is None else found.models
    return next((t for t in models if (t.name, (t.shape, t.threads)) == (name, place)), None)


def _pair(found: Benchmark | None, name: str, place: tuple[str, int | None] | None) -> Pair | None:
    """The time of `name` over the float model's."""
    rows = () if found is None else found.rows
    wanted = (FLOAT, name, place)
    return next((p for p in rows if (p.a, p.b, (p.shape, p.threads)) == wanted), None)


def _named(model: _Model, evidence: Evidence) -> Cell:
    found, file = evidence.comparison, ""
    if found is not None and model.name != ORT:
        file = clean(found.float_model if model.name == FLOAT else found.quantized_model)
    return Cell(_NAMES[model.name], detail=", ".join(filter(None, (file, model.where))))


def _cost_parts(models: Sequence[_Model]) -> Iterator[_Part]:
    taken = bars(m.bytes for m in models)
    yield (
        Column("size", FIGURE, "bytes of the model's files"),
        lambda m: _cell(m.bytes, size, taken),
    )
    yield (
        Column("latency", FIGURE, "median time of a run"),
        lambda m: Cell("") if m.timed is None else _latency(m.timed),
    )
    ratios = bars([1.0, *(m.pair.ratio for m in models if m.pair is not None)])
    hint = f"the model's time over the float model's, with a {CONFIDENCE:.0%} interval"
    yield Column("time / float", FIGURE, hint), lambda m: _ratio(m.pair, ratios)
    hint = "runs a second, times the entries of a batch"
    yield Column("per second", FIGURE, hint), _timed_cell("per_second", rate)
    for heading, field, text, hint in (
        ("load", "load_seconds", latency, "time until a session is open"),
        ("memory", "peak_memory", size, "peak that opening and one run add to a process"),
    ):
        length = bars(_value(m, field) for m in models)
        yield (
            Column(heading, FIGURE, hint),
            _timed_cell(field, text, length),
        )


def _error_parts(models: Sequence[_Model]) -> Iterator[_Part]:
    length = bars(worst_error(m.comparison) for m in models)
    hint = "of the worst output: half the squared distance over the squared length"
    yield Column("error", FIGURE, hint), lambda m: _error(m.comparison, length)
    hint = "signal to quantization noise ratio of the worst output: the more, the better"
    yield Column("SQNR", FIGURE, hint), lambda m: _sqnr(m.comparison)
    hint = "share of rows whose largest number is at the same place as in the float model"
    yield Column("top-1", FIGURE, hint), lambda m: _agreement(m.comparison)


def _latency(timed: Timed) -> Cell:
    spread = f"spread {timed.spread:.1%}"
    return Cell(latency(timed.seconds), timed.seconds, detail=spread)


def _ratio(pair: Pair | None, length: Callable[[float], float | None]) -> Cell:
    if pair is None:
        return Cell("")
    mark, tone = _VERDICTS[pair.verdict]
    bounds = f"{times(pair.low)} to {times(pair.high)}"
    return Cell(times(pair.ratio), pair.ratio, tone, mark, detail=bounds, bar=length(pair.ratio))


def _error(found: Comparison | None, length: Callable[[float], float | None]) -> Cell:
    error, worst = worst_error(found), worst_output(found)
    if error is None or worst is None or worst.difference is None:
        return Cell("")
    if worst.difference.non_finite:
        return Cell("not finite", error, tone="bad")
    cosine = worst.difference.cosine
    detail = "" if cosine is None else f"1 - cosine {number(max(0.0, 1 - cosine))}"
    return Cell(number(error), error, detail=detail, bar=length(error))


def _sqnr(found: Comparison | None) -> Cell:
    worst = worst_output(found)
    difference = None if worst is None else worst.difference
    if difference is None or difference.non_finite:
        return Cell("")
    return Cell(decibels(difference), difference.sqnr_db)


def _agreement(found: Comparison | None) -> Cell:
    least = least_agreement(found)
    return Cell("") if least is None else Cell(f"{least:.1%}", least)


def _value(model: _Model, field: str) -> float | int | None:
    return None if model.timed is None else getattr(model.timed, field)


def _timed_cell(
    field: str,
    text: Callable[..., str],
    length: Callable[[float], float | None] | None = None,
) -> Callable[[_Model], Cell]:
    return lambda model: _cell(_value(model, field), text, length)


def _cell(
    value: float | int | None,
    text: Callable[..., str],
    length: Callable[[float], float | None] | None,
) -> Cell:
    if value is None:
        return Cell("")
    return Cell(text(value), value, bar=None if length is None else length(value))


def _intro(evidence: Evidence, models: Sequence[_Model]) -> Iterator[str]:
    found, compared = evidence.benchmark, evidence.comparison
    if found is not None and found.models:
        place = (
            ""
            if any(m.where for m in models)
            else conditions(found.models[0].shape, found.models[0].threads)
        )
        yield f"Timed for {duration(found.seconds)}{f', {place}' if place else ''}."
    else:
        yield "Nothing was timed."
    if compared is not None:
        runs = count(compared.runs, "run")
        yield f"Outputs compared over {runs} on inputs {clean(compared.inputs)}."
    else:
        yield "Outputs were not compared."


def _how(models: Sequence[_Model]) -> Iterator[str]:
    if any(m.name == ORT for m in models):
        yield f"{ORT_NAME} is what its quantize_dynamic makes by default."
    if any(m.pair is not None for m in models):
        yield f"Time over float is given with its {CONFIDENCE:.0%} interval, timed in turns."
    if any(m.comparison is not None for m in models):
        yield (
            "Error is that of the worst output: half the squared distance over the squared length, "
            "which for small errors is 1 - cosine."
        )
    yield "Bars: the shorter, the better."


def measured_sections(
    report: Report | None,
    evidence: Evidence | None,
    sizes: tuple[int | None, int | None],
    before_layers: Sequence[Section] = (),
    title: str = "Layers",
) -> Iterator[Section]:
    """The models beside each other, `before_layers`, the layers, their ranges; what there is."""
    if evidence is not None:
        yield beside_table(evidence, sizes)
    yield from before_layers
    layers = layer_table(report, evidence, title)
    if layers is not None:
        yield layers
    found = None if evidence is None else evidence.comparison
    ranges = None if found is None else ranges_table(found, report)
    if ranges is not None:
        yield ranges


def measured_notes(evidence: Evidence | None) -> list[tuple[str, str]]:
    """What the measurements have to say of themselves: (what it is about, the remark) pairs."""
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
