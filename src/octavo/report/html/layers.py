"""The layers of a quantized model as a section of a page: what was decided, and what it costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from octavo.report.html.parts import (
    FIGURE,
    INDEX,
    NAME,
    TEXT,
    Cell,
    Column,
    Table,
    noise_bars,
    sortable,
)
from octavo.results import words
from octavo.results.comparison import Comparison, Difference, LayerDifference
from octavo.results.comparison_page import decibels, layer_notes
from octavo.results.evidence import Evidence
from octavo.results.report import LayerOutcome, Report
from octavo.results.words import clean, count, size


@dataclass(frozen=True)
class _Row:
    """One layer: its place in the model, what was decided of it, what was measured of it."""

    index: int
    outcome: LayerOutcome | None
    found: LayerDifference | None

    @property
    def name(self) -> str:
        given = self.outcome.layer.name if self.outcome else self.found.name if self.found else ""
        return words.name(given)

    @property
    def op(self) -> str:
        return self.outcome.layer.op if self.outcome else self.found.op if self.found else ""


_Part = tuple[Column, list[Cell]]
"""A column, and its cells."""


def layer_table(
    report: Report | None, evidence: Evidence | None = None, title: str = "Layers"
) -> Table | None:
    """Build the table of every layer; None where there is none.

    A row has what was decided and why, bytes before and after, and the layer's errors. With a
    comparison the worst layer comes first, those that are left float last.
    """
    found = None if evidence is None else evidence.comparison
    rows = _joined(report, found)
    if not rows:
        return None
    parts = list(_named(report, found, rows))
    if report is not None:
        parts += _decided([row.outcome for row in rows])
    if found is not None:
        parts += _errors(rows)
    notes = [_notes(report, row) for row in rows]
    if report is not None or any(cell.text for cell in notes):
        parts.append((Column("notes" if report is None else "reason", TEXT), notes))
    return Table(
        "layers",
        title,
        tuple(column for column, _ in parts),
        tuple(zip(*(cells for _, cells in parts), strict=True)),
        "layers",
        intro=" ".join(_intro(report, found)),
        how=" ".join(_how(report, found)),
        rising="alone" if found is not None and found.layers else "",
    )


def _joined(report: Report | None, found: Comparison | None) -> list[_Row]:
    """Join the report's and the comparison's layers by name, in the comparison's order if any."""
    outcomes: defaultdict[str, list[tuple[int, LayerOutcome]]] = defaultdict(list)
    for i, outcome in enumerate(() if report is None else report.layers, 1):
        outcomes[outcome.layer.name].append((i, outcome))
    rows = []
    for layer in () if found is None else found.layers:
        index, decided = outcomes[layer.name].pop(0) if outcomes[layer.name] else (0, None)
        rows.append(_Row(index, decided, layer))
    left = sorted(pair for pairs in outcomes.values() for pair in pairs)
    return [*rows, *(_Row(i, outcome, None) for i, outcome in left)]


def _named(
    report: Report | None, found: Comparison | None, rows: Sequence[_Row]
) -> Iterator[_Part]:
    if report is not None and found is not None:
        yield (
            Column("#", INDEX, "place in the model"),
            [Cell(f"{row.index:,}" if row.index else "", row.index or None) for row in rows],
        )
    suspect = None if found is None else found.suspect
    yield (
        Column("layer", NAME),
        [
            Cell(row.name, mark="look here first", tone="bad")
            if suspect is not None and row.found is suspect
            else Cell(row.name)
            for row in rows
        ],
    )
    yield Column("operator"), [Cell(clean(row.op.rpartition(".")[2])) for row in rows]


def _decided(outcomes: Sequence[LayerOutcome | None]) -> Iterator[_Part]:
    yield (
        Column("scheme"),
        [
            Cell("")
            if o is None
            else Cell(clean(o.scheme))
            if o.quantized
            else Cell("float", tone="warn")
            for o in outcomes
        ],
    )
    yield (
        Column("before", FIGURE, "bytes of the float weights"),
        [Cell("") if o is None else _bytes(o, o.bytes_before) for o in outcomes],
    )
    yield (
        Column("after", FIGURE, "bytes of quantized weights, scales and zero points"),
        [Cell("") if o is None else _bytes(o, o.bytes_after) for o in outcomes],
    )
    hint = "the weights' signal to quantization noise ratio: the more, the better"
    sqnr = [None if o is None else o.sqnr_db for o in outcomes]
    yield (
        Column("weight SQNR", FIGURE, hint),
        [Cell(words.decibels(x), sortable(x)) for x in sqnr],
    )


def _bytes(outcome: LayerOutcome, n: int) -> Cell:
    shared = outcome.layer.shares_with and not outcome.bytes_before
    return Cell("shared" if shared else size(n), n)


def _errors(rows: Sequence[_Row]) -> Iterator[_Part]:
    """Yield both columns of errors, which share one scale so that their bars can be compared."""
    alone = [row.found.alone if row.found else None for row in rows]
    accumulated = [row.found.accumulated if row.found else None for row in rows]
    length = noise_bars(d.sqnr_db for d in (*alone, *accumulated) if d is not None)
    hint = "SQNR of the layer's output when it is fed the float model's numbers"
    yield Column("alone", FIGURE, hint), [_error(d, length) for d in alone]
    hint = "SQNR of the same output in the quantized model as it runs"
    yield Column("accumulated", FIGURE, hint), [_error(d, length) for d in accumulated]


def _error(d: Difference | None, length: Callable[[float], float]) -> Cell:
    if d is None:
        return Cell("")
    sqnr = -math.inf if d.non_finite or not d.values else d.sqnr_db
    return Cell(decibels(d), sqnr, tone="bad" if d.non_finite else "", bar=length(sqnr))


def _notes(report: Report | None, row: _Row) -> Cell:
    """Say why the layer is as it is, and what else is to be said of that layer."""
    said = [] if row.outcome is None else [row.outcome.reason, *row.outcome.notes]
    said += [] if row.found is None else layer_notes(row.found)
    text = clean("; ".join(dict.fromkeys(filter(None, said))))
    if text or report is None or row.outcome is None:
        return Cell(text)
    return Cell(f"recipe {clean(report.recipe.get('name', 'custom'))}", tone="dim")


def _intro(report: Report | None, found: Comparison | None) -> Iterator[str]:
    if report is not None:
        total = count(len(report.layers), "layer")
        yield f"{len(report.quantized):,} of {total} quantized."
    elif found is not None:
        left = f", and {found.left_float:,} left float" if found.left_float else ""
        yield f"{count(len(found.layers), 'quantized layer')}{left}."
    if found is not None:
        yield _standing(found)


def _how(report: Report | None, found: Comparison | None) -> Iterator[str]:
    if report is not None:
        yield "Bytes are those of weights, scales and zero points."
    else:
        yield "Why layers are as they are, the file does not say; nor what bytes each has."
    if found is None:
        yield "SQNR is the weight's signal to quantization noise ratio: the more the better."
        return
    yield (
        "Errors are signal to quantization noise ratios of a layer's output: alone, fed what the "
        "float model feeds it, and accumulated, in the quantized model as it runs. Bars are "
        "logarithmic: the longer, the worse."
    )
    if report is not None:
        yield "Weight SQNR is that of the stored weights."


def _standing(found: Comparison) -> str:
    blamed, middle = found.suspect, words.decibels(found.median_sqnr_db)
    if blamed is not None and blamed.alone is not None:
        return (
            f"Look first at {clean(blamed.name)}: alone it has {decibels(blamed.alone)}, the "
            f"median of all layers is {middle}."
        )
    return f"No layer stands out; the median alone is {middle}." if middle else ""
