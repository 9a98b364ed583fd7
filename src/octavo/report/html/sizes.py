"""What a model's bytes are, before and after: a section of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from octavo.core.layer import Kind
from octavo.report.html.parts import FIGURE, NAME, Cell, Column, Table, bars, share
from octavo.results import words
from octavo.results.names import grouped
from octavo.results.report import LayerOutcome, Report
from octavo.results.words import clean, count, size

_NAMES = {
    Kind.EMBEDDING: "embedding tables",
    Kind.CONV: "weights of convolutions",
    Kind.LINEAR: "weights of linear layers",
    Kind.ATTENTION: "weights of attentions",
}


@dataclass(frozen=True)
class _Part:
    """Bytes of the model that have something in common."""

    name: str
    detail: str
    before: int
    after: int


def size_table(report: Report) -> Table | None:
    """Embedding tables, weights by kind, what stays float, the rest; None where nothing is known.

    The rest is what the models' bytes are beyond their layers: norms, biases, the graph.
    """
    if not report.model_bytes_before or not report.model_bytes_after:
        return None
    parts = [part for part in _parts(report) if part.before or part.after]
    parts.sort(key=lambda part: -part.before)
    whole = _Part("the whole model", "", report.model_bytes_before, report.model_bytes_after)
    length = bars([part.before for part in parts])
    rows = [
        (
            Cell(part.name, detail=part.detail),
            Cell(size(part.before), part.before, bar=length(part.before)),
            Cell(size(part.after), part.after, bar=length(part.after)),
            Cell(words.ratio(part.before, part.after) if part.before and part.after else ""),
            _share(part.after, whole.after),
        )
        for part in (*parts, whole)
    ]
    columns = (
        Column("part", NAME),
        Column("before", FIGURE, "bytes in the float model"),
        Column("after", FIGURE, "bytes in the quantized model"),
        Column("change", FIGURE),
        Column("share", FIGURE, "of the quantized model's bytes"),
    )
    return Table("sizes", "Size by part", columns, tuple(rows), "parts", intro=_intro(parts))


def _parts(report: Report) -> Iterator[_Part]:
    for kind, members in grouped(report.quantized, lambda o: o.layer.kind):
        yield _part(_NAMES.get(kind, f"weights of {kind.value.upper()}s"), members)
    left = [o for o in report.left_float if o.bytes_before]
    if left:
        yield _part("layers left float", left)
    held = [
        sum(getattr(o, name) for o in report.layers) for name in ("bytes_before", "bytes_after")
    ]
    before, after = report.model_bytes_before - held[0], report.model_bytes_after - held[1]
    if before >= 0 and after >= 0:
        yield _Part("everything else", "norms, biases, the graph", before, after)


def _part(name: str, members: Sequence[LayerOutcome]) -> _Part:
    ops = ", ".join(sorted({clean(o.layer.op.rpartition(".")[2]) for o in members}))
    before, after = (
        sum(getattr(o, key) for o in members) for key in ("bytes_before", "bytes_after")
    )
    return _Part(name, f"{count(len(members), 'layer')}: {ops}", before, after)


def _share(part: int, whole: int) -> Cell:
    return Cell(f"{part / whole:.0%}", part / whole, bar=share(part / whole))


def _intro(parts: Sequence[_Part]) -> str:
    largest = max(parts, key=lambda part: part.after, default=None)
    if largest is None:
        return ""
    return f"The largest part of the quantized model: {largest.name}, {size(largest.after)}."
