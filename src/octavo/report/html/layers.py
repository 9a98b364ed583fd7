"""The layers of a quantized model as a section of a page."""

from __future__ import annotations

import math

from octavo.recipe.report import LayerOutcome, Report
from octavo.report import text as words
from octavo.report.html.parts import Cell, Table
from octavo.report.text import clean, count, size

_COLUMNS = (
    ("layer", False),
    ("operator", False),
    ("scheme", False),
    ("before", True),
    ("after", True),
    ("SQNR", True),
    ("reason", False),
)


def layer_table(report: Report, title: str = "Layers") -> Table:
    """Every layer: how it is held, its bytes before and after, its weight's SQNR, and why."""
    intro = f"{len(report.quantized):,} of {count(len(report.layers), 'layer')} quantized. " + (
        "Bytes are those of weights, scales and zero points; SQNR is the weight's signal to "
        "quantization noise ratio: the more the better."
    )
    rows = tuple(_row(outcome) for outcome in report.layers)
    return Table("layers", title, _COLUMNS, rows, "layers", intro=intro)


def _row(o: LayerOutcome) -> tuple[Cell, ...]:
    noisy = o.sqnr_db is not None and not math.isnan(o.sqnr_db)
    why = [*filter(None, (o.reason,)), *o.notes]
    shared = "shared" if o.layer.shares_with and not o.bytes_before else ""
    return (
        Cell(clean(o.layer.name) or "(no name)"),
        Cell(clean(o.layer.op)),
        Cell(clean(o.scheme) if o.quantized else "float", tone="" if o.quantized else "warn"),
        Cell(shared or size(o.bytes_before), o.bytes_before),
        Cell(shared or size(o.bytes_after), o.bytes_after),
        Cell(words.decibels(o.sqnr_db), o.sqnr_db if noisy else None),
        Cell(clean("; ".join(why))),
    )
