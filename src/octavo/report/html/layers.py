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
from octavo.results.comparison_page import decibels, not_finite
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
        return clean(_name(self)) or "(no name)"


_Part = tuple[Column, Callable[[_Row], Cell]]
"""A column, and what stands in it."""


def layer_table(
    report: Report | None, evidence: Evidence | None = None, title: str = "Layers"
) -> Table | None:
    """Every layer: what was decided and why, bytes before and after, its errors; None without any.

    With a comparison the worst layer comes first, those that are left float last.
    """
    found = None if evidence is None else evidence.comparison
    rows = _joined(report, found)
    if not rows:
        return None
    parts = [*_named(report, found), *_decided(report), *_errors(found, rows), _why(report)]
    cells = [tuple(cell(row) for _, cell in parts) for row in rows]
    kept = [i for i, (column, _) in enumerate(parts) if _needed(column, [row[i] for row in cells])]
    return Table(
        "layers",
        title,
        tuple(parts[i][0] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in cells),
        "layers",
        intro=" ".join(_intro(report, found)),
        how=" ".join(_how(report, found)),
        rising="alone" if found is not None and found.layers else "",
    )


def _needed(column: Column, cells: Sequence[Cell]) -> bool:
    return column.heading != "notes" or any(cell.text for cell in cells)


def _joined(report: Report | None, found: Comparison | None) -> list[_Row]:
    """The layers of both, by their names: in the comparison's order where there is one."""
    outcomes: defaultdict[str, list[tuple[int, LayerOutcome]]] = defaultdict(list)
    for i, outcome in enumerate(() if report is None else report.layers, 1):
        outcomes[outcome.layer.name].append((i, outcome))
    rows = []
    for layer in () if found is None else found.layers:
        index, decided = outcomes[layer.name].pop(0) if outcomes[layer.name] else (0, None)
        rows.append(_Row(index, decided, layer))
    left = sorted(pair for pairs in outcomes.values() for pair in pairs)
    return [*rows, *(_Row(i, outcome, None) for i, outcome in left)]


def _named(report: Report | None, found: Comparison | None) -> Iterator[_Part]:
    blamed = None if found is None else found.suspect

    def name(row: _Row) -> Cell:
        if blamed is not None and row.found is blamed:
            return Cell(row.name, mark="look here first", tone="bad")
        return Cell(row.name)

    if report is not None and found is not None:
        yield (
            Column("#", INDEX, "place in the model"),
            lambda row: Cell(f"{row.index:,}" if row.index else "", row.index or None),
        )
    yield Column("layer", NAME), name
    yield Column("operator"), lambda row: Cell(clean(_operator(row).rpartition(".")[2]))


def _decided(report: Report | None) -> Iterator[_Part]:
    if report is None:
        return
    yield Column("scheme"), lambda row: _scheme(row.outcome)
    yield Column("before", FIGURE, "bytes of the float weights"), _bytes("bytes_before")
    hint = "bytes of quantized weights, scales and zero points"
    yield Column("after", FIGURE, hint), _bytes("bytes_after")
    hint = "the weights' signal to quantization noise ratio: the more, the better"
    yield Column("weight SQNR", FIGURE, hint), _weight_sqnr


def _scheme(outcome: LayerOutcome | None) -> Cell:
    if outcome is None:
        return Cell("")
    text = clean(outcome.scheme) if outcome.quantized else "float"
    return Cell(text, tone="" if outcome.quantized else "warn")


def _bytes(field: str) -> Callable[[_Row], Cell]:
    def cell(row: _Row) -> Cell:
        if row.outcome is None:
            return Cell("")
        n = getattr(row.outcome, field)
        shared = row.outcome.layer.shares_with and not row.outcome.bytes_before
        return Cell("shared" if shared else size(n), n)

    return cell


def _weight_sqnr(row: _Row) -> Cell:
    if row.outcome is None:
        return Cell("")
    return Cell(words.decibels(row.outcome.sqnr_db), sortable(row.outcome.sqnr_db))


def _errors(found: Comparison | None, rows: Sequence[_Row]) -> Iterator[_Part]:
    """Both columns share one scale, so that their bars can be compared."""
    if found is None:
        return
    pairs = ((row.found.alone, row.found.accumulated) for row in rows if row.found is not None)
    length = noise_bars(d.sqnr_db for pair in pairs for d in pair if d is not None)
    hint = "SQNR of the layer's output when it is fed the float model's numbers"
    yield (
        Column("alone", FIGURE, hint),
        lambda row: _error(_alone(row), length),
    )
    hint = "SQNR of the same output in the quantized model as it runs"
    yield (
        Column("accumulated", FIGURE, hint),
        lambda row: _error(_accumulated(row), length),
    )


def _alone(row: _Row) -> Difference | None:
    return None if row.found is None else row.found.alone


def _accumulated(row: _Row) -> Difference | None:
    return None if row.found is None else row.found.accumulated


def _error(d: Difference | None, length: Callable[[float], float]) -> Cell:
    if d is None:
        return Cell("")
    sqnr = -math.inf if d.non_finite or not d.values else d.sqnr_db
    return Cell(
        decibels(d),
        sqnr,
        tone="bad" if d.non_finite else "",
        bar=length(sqnr),
    )


def _why(report: Report | None) -> _Part:
    """Why the layer is as it is, and what is to be said of it."""

    def reason(row: _Row) -> Cell:
        decided, found = row.outcome, row.found
        said = [decided.reason, *decided.notes] if decided is not None else []
        if found is not None:
            said += found.notes
            said += [_of("alone", found.alone), _of("accumulated", found.accumulated)]
        text = clean("; ".join(dict.fromkeys(filter(None, said))))
        if text or report is None or decided is None:
            return Cell(text)
        return Cell(f"recipe {clean(report.recipe.get('name', 'custom'))}", tone="dim")

    return Column("notes" if report is None else "reason", TEXT), reason


def _of(what: str, d: Difference | None) -> str:
    text = not_finite(d)
    return f"{what}: {text}" if text else ""


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


def _name(row: _Row) -> str:
    if row.outcome is not None:
        return row.outcome.layer.name
    return "" if row.found is None else row.found.name


def _operator(row: _Row) -> str:
    if row.outcome is not None:
        return row.outcome.layer.op
    return "" if row.found is None else row.found.op
