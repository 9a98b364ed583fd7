"""The report of one quantization, and what was measured of its result, as a page for a browser."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.report.html.evidence import measured_notes, measured_sections
from octavo.report.html.parts import Commands, Facts, Notes, Page, Section, Tile
from octavo.report.html.render import page_data, render
from octavo.report.html.sizes import size_table
from octavo.report.html.verdict import (
    error_tiles,
    measured_verdict,
    model_sizes,
    size_tile,
    speed_tile,
)
from octavo.results import words
from octavo.results.advice import advice
from octavo.results.comparison import Comparison
from octavo.results.comparison_page import decibels
from octavo.results.evidence import Evidence
from octavo.results.judgement import Judgement, Ship, bound_of, judge, worst_error
from octavo.results.names import grouped
from octavo.results.report import Report
from octavo.results.report_page import needs
from octavo.results.words import clean, count, duration, number, padding, size


def report_html(report: Report | None, evidence: Evidence | None = None) -> str:
    """Return the report and the evidence as one self-contained HTML document.

    Either may be None, not both (ValueError): without a report, what was decided about the layers
    is not known, and the page shows what was measured. OptionError where jinja2 is missing.
    """
    if report is None and evidence is None:
        raise ValueError("report_html takes a report, evidence or both, not None twice")
    return render(_page(report, evidence))


def in_short(report: Report | None, evidence: Evidence | None) -> str:
    """Return the page's verdict, and why: `Ready to ship: its outputs are close to ..`."""
    judged = _judged(report, evidence or Evidence())
    return _MEASURED if judged is None else judged.in_short


def _judged(report: Report | None, evidence: Evidence) -> Judgement | None:
    """Judge a report or measurements; None where there is nothing to judge by."""
    sizes = _sizes(report) if report is not None else model_sizes(evidence)
    known = report is not None or evidence.comparison is not None
    return judge(report, evidence, sizes) if known else None


_MEASURED = "Measured"
"""The heading of a page that has no verdict."""


def _page(report: Report | None, given: Evidence | None) -> Page:
    evidence = given or Evidence()
    subject = _subject(report, evidence.comparison)
    judged = _judged(report, evidence)
    return Page(
        title=f"{subject}: quantization",
        subject=subject,
        heading=_MEASURED if judged is None else judged.heading,
        summary="" if judged is None else judged.sentence,
        sentence=" ".join(filter(None, (*_sentences(report, given), *_alarms(report, evidence)))),
        good=judged is not None and judged.ship is Ship.READY,
        bad=judged is not None and judged.ship is Ship.NOT,
        tiles=tuple(_tiles(report, evidence)),
        sections=(*_next(report, evidence, judged), *_sections(report, given)),
        data=page_data(report=report, evidence=given),
    )


def _next(report: Report | None, evidence: Evidence, judged: Judgement | None) -> Iterator[Section]:
    given = () if judged is None else advice(report, evidence, judged)
    if given:
        items = tuple((clean(one.what), clean(one.command)) for one in given)
        yield Commands("next", "What to do next", items)


def _subject(report: Report | None, found: Comparison | None) -> str:
    if report is not None:
        return clean(report.source)
    return "a quantized model" if found is None else clean(found.quantized_model)


def _beyond(report: Report | None, found: Comparison) -> bool:
    error = worst_error(found)
    return error is not None and error > bound_of(report)


def _alarms(report: Report | None, evidence: Evidence) -> Iterator[str]:
    """Yield what is wrong with the errors measured, and which layer to look at first."""
    found = evidence.comparison
    if found is None:
        return
    if _beyond(report, found):
        yield f"The error is above {number(bound_of(report))}, the largest allowed."
    blamed = found.suspect
    if blamed is not None:
        yield f"Look first at {words.name(blamed.name)}, alone {decibels(blamed.alone)}."


def _passed(report: Report) -> bool:
    return report.verification.status == "passed"


def _sizes(report: Report | None) -> tuple[int | None, int | None]:
    return (report.model_bytes_before, report.model_bytes_after) if report else (None, None)


def _sentences(report: Report | None, given: Evidence | None) -> Iterator[str]:
    """Yield the verdict: what was measured, then what became of the layers."""
    said = measured_verdict(given, *_sizes(report)) if given is not None else ""
    yield said
    if report is None:
        yield from [] if said else ["Nothing could be measured."]
        return
    before, after = report.model_bytes_before, report.model_bytes_after
    smaller = f", the model is {words.ratio(before, after)} ({size(before)} to {size(after)})"
    done, total = len(report.quantized), count(len(report.layers), "layer")
    sentence = f"{done:,} of {total} are quantized{'' if said else smaller}"
    if _passed(report):
        sentence += ", the comparison with the float model passed"
    elif report.verification.status == "compared":
        sentence += ", what could be compared with the float model is within the bound"
    elif given is None or given.comparison is None:
        why = "skipped" if report.verification.status == "skipped" else "it could not be checked"
        sentence += f", the comparison with the float model was not made ({why})"
    yield f"{sentence}."


def _tiles(report: Report | None, evidence: Evidence) -> Iterator[Tile]:
    speed = speed_tile(evidence)
    if speed is not None:
        yield speed
    before, after = model_sizes(evidence) if report is None else _sizes(report)
    if before and after:
        yield size_tile(before, after)
    errors = list(error_tiles(evidence))
    yield from errors
    if report is not None:
        if not errors:
            yield _checked(report)
        yield _done(report)
        if not errors:
            yield from _worst_weight(report)


def _done(report: Report) -> Tile:
    done, total = len(report.quantized), len(report.layers)
    held = sum(o.bytes_after for o in report.left_float)
    detail = "layers" + (f"; {size(held)} of weights left float" if held else "")
    return Tile("Quantized", f"{done:,} of {total:,}", detail, done / total if total else None)


def _checked(report: Report) -> Tile:
    v = report.verification
    if v.error is None:
        return Tile("Error", "not compared", clean(v.detail))
    bound = f"at most {number(v.max_error)} allowed, " if v.max_error is not None else ""
    detail = f"{bound}{count(v.runs, 'run')} on inputs {clean(v.inputs)}"
    return Tile("Error", number(v.error), detail)


def _worst_weight(report: Report) -> Iterator[Tile]:
    rated = [(o.sqnr_db, o.layer.name) for o in report.quantized if o.sqnr_db is not None]
    if rated:
        worst, name = min(rated)
        yield Tile("Worst weight SQNR", words.decibels(worst), clean(name))


def _sections(report: Report | None, evidence: Evidence | None) -> Iterator[Section]:
    if report is not None and (table := size_table(report)) is not None:
        yield table
    left = [_left_float(report)] if report is not None and report.left_float else []
    yield from measured_sections(report, evidence, _sizes(report), before_layers=left)
    notes = [("", note) for note in (report.notes if report is not None else ())]
    notes += measured_notes(evidence)
    if notes:
        yield Notes("notes", "Notes", tuple((clean(what), clean(note)) for what, note in notes))
    facts = tuple(_facts(report) if report is not None else _files(evidence))
    if facts:
        yield Facts("run", "This run", facts)


def _left_float(report: Report) -> Notes:
    items = []
    for reason, members in grouped(report.left_float, lambda o: o.reason):
        held = size(sum(o.bytes_before for o in members))
        named = words.names([o.layer.name for o in members])
        what = f"{count(len(members), 'layer')}, {held}: {named}"
        items.append((clean(reason) or "no reason given", what))
    return Notes("float", "Left float", tuple(items))


def _files(evidence: Evidence | None) -> Iterator[tuple[str, str]]:
    found = None if evidence is None else evidence.comparison
    if found is not None:
        yield "Float model", clean(found.float_model)
        yield "Quantized model", clean(found.quantized_model)
        yield "Target", clean(found.target)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    yield "Recipe", clean(report.recipe.get("name", "custom"))
    yield "Target", clean(report.target)
    if report.target == "native":
        yield "Processors", "any x86-64 or ARM, with Octavo's library"
    elif report.cpu:
        yield "Processors", clean(report.cpu)
    if report.quant_format:
        yield "Format", clean(report.quant_format)
    yield from needs(report)
    v = report.verification
    if v.error is not None and (said := words.apart(v.cosine_error, v.error)):
        yield "1 - cosine", said.rpartition(" ")[2]
    if v.detail:
        yield "Check", clean(v.detail)
    if v.ran_on:
        yield "Inputs", clean(f"{v.inputs}: {v.ran_on}{padding(v.padding)}")
    yield "Took", duration(report.seconds)
    yield "Wrote", clean(report.output) or "nothing"
