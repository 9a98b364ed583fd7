"""The report of one quantization as a page for a browser."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from octavo.recipe.evidence import Evidence
from octavo.recipe.report import Report
from octavo.report import text as words
from octavo.report.groups import grouped
from octavo.report.html.layers import layer_table
from octavo.report.html.parts import Facts, Notes, Page, Section, Tile
from octavo.report.html.render import render
from octavo.report.text import clean, count, duration, number, size


def report_html(report: Report | None, evidence: Evidence | None = None) -> str:
    """The report as one self-contained HTML document; OptionError where jinja2 is missing."""
    assert report is not None
    return render(_page(report))


def _page(report: Report) -> Page:
    before, after = report.model_bytes_before, report.model_bytes_after
    done, layers = len(report.quantized), count(len(report.layers), "layer")
    checked = report.verification.status
    return Page(
        title=f"{clean(report.source)}: quantization",
        subject=clean(report.source),
        heading="Quantized" if done else "Nothing quantized",
        sentence=f"{done:,} of {layers} are quantized, the model is {words.ratio(before, after)} "
        f"({size(before)} to {size(after)}), the comparison with the float model "
        f"{'passed' if checked == 'passed' else f'was not made ({clean(checked)})'}.",
        good=bool(done) and checked == "passed",
        tiles=tuple(_tiles(report)),
        sections=tuple(_sections(report)),
        data=json.loads(report.to_json(indent=None)),
    )


def _tiles(report: Report) -> Iterator[Tile]:
    before, after = report.model_bytes_before, report.model_bytes_after
    share = min(1.0, after / before) if before else None
    yield Tile("Size", size(after), f"{words.ratio(before, after)}, float {size(before)}", share)
    done, total = len(report.quantized), len(report.layers)
    held = sum(o.bytes_after for o in report.left_float)
    yield Tile(
        "Quantized",
        f"{done:,} of {total:,}",
        "layers" + (f"; {size(held)} of weights left float" if held else ""),
        done / total if total else None,
    )
    v = report.verification
    if v.error is None:
        yield Tile("Error", "not compared", clean(v.detail))
    else:
        bound = f"at most {number(v.max_error)} allowed, " if v.max_error is not None else ""
        detail = f"{bound}{count(v.runs, 'run')} on inputs {clean(v.inputs)}"
        yield Tile("Error", number(v.error), detail)
    rated = [(o.sqnr_db, o.layer.name) for o in report.quantized if o.sqnr_db is not None]
    if rated:
        worst, name = min(rated)
        yield Tile("Worst SQNR", words.decibels(worst), clean(name))


def _sections(report: Report) -> Iterator[Section]:
    if report.left_float:
        yield _left_float(report)
    yield layer_table(report)
    if report.notes:
        yield Notes("notes", "Notes", tuple(("", clean(note)) for note in report.notes))
    yield Facts("run", "This run", tuple(_facts(report)))


def _left_float(report: Report) -> Notes:
    items = []
    for reason, members in grouped(report.left_float, lambda o: o.reason):
        held = size(sum(o.bytes_before for o in members))
        named = words.names([o.layer.name for o in members])
        what = f"{count(len(members), 'layer')}, {held}: {named}"
        items.append((clean(reason) or "no reason given", what))
    return Notes("float", "Left float", tuple(items))


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    yield "Recipe", clean(report.recipe.get("name", "custom"))
    yield "Target", clean(report.target)
    if report.cpu:
        yield "Processors", clean(report.cpu)
    if report.quant_format:
        yield "Format", clean(report.quant_format)
    if report.min_onnxruntime:
        needed = f"ONNX Runtime {clean(report.min_onnxruntime)} or newer (opset {report.opset})"
        yield "Needs", needed
    v = report.verification
    if v.cosine_error is not None and math.isfinite(v.cosine_error):
        yield "1 - cosine", number(v.cosine_error)
    if v.detail:
        yield "Check", clean(v.detail)
    yield "Took", duration(report.seconds)
    yield "Wrote", clean(report.output) or "nothing"
