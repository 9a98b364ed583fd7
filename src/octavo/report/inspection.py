"""The inventory of a model as text: its layers, their share of the work, what a recipe would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from octavo.recipe.layer import Decision, Kind, Layer
from octavo.report import text as words
from octavo.report.groups import grouped
from octavo.report.text import clean, count, size


class InspectionLike(Protocol):
    """What a front end's inspection has."""

    @property
    def model(self) -> str:
        """The file's path, or the module's type."""

    @property
    def opset(self) -> int | None:
        """Opset of the default domain; None for what is no ONNX model."""

    @property
    def ir_version(self) -> int | None:
        """ONNX IR version, likewise."""

    @property
    def model_bytes(self) -> int:
        """Size of the file, with external data, or of the module's tensors."""

    @property
    def recipe_name(self) -> str:
        """The recipe that decided."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One for each layer, in the model's order."""


def inspection_text(inspection: InspectionLike) -> str:
    """The inventory as plain text."""
    return words.plain(list(_page(inspection)))


def print_inspection(inspection: InspectionLike, console: Console) -> None:
    """Prints the inventory, as tables on a terminal."""
    words.show(list(_page(inspection)), console)


def _page(inspection: InspectionLike) -> Iterator[RenderableType]:
    decisions = inspection.decisions
    work = sum(d.layer.macs_per_row or 0 for d in decisions)
    yield Text(clean(inspection.model), style="bold")
    onnx = f"opset {inspection.opset}, IR version {inspection.ir_version}, "
    yield Text(
        f"{size(inspection.model_bytes)}, {'' if inspection.opset is None else onnx}"
        f"{count(len(decisions), 'layer')} with "
        f"{size(sum(d.layer.bytes for d in decisions))} of weights"
    )
    yield Text(f"What the recipe {clean(inspection.recipe_name)} would do:")
    yield Text()
    for heading, style, chosen in (
        ("Quantize", "bold green", [d for d in decisions if not d.scheme.is_float]),
        ("Leave float", "bold", [d for d in decisions if d.scheme.is_float]),
    ):
        for (scheme, reason), decided in grouped(chosen, lambda d: (d.scheme, d.reason)):
            what = (
                reason if scheme.is_float else ": ".join(filter(None, (scheme.describe(), reason)))
            )
            yield Text.assemble((heading, style), f": {clean(what)}")
            for (kind, op), members in grouped(decided, lambda d: (d.layer.kind, d.layer.op)):
                yield words.indented(_summary(kind, op, members, work))
                yield _table(members, work)
            yield Text()
    yield from _footnotes(decisions)


def _summary(kind: Kind, op: str, members: Sequence[Decision], work: int) -> str:
    held = size(sum(d.layer.bytes for d in members))
    total = sum(d.layer.macs_per_row or 0 for d in members)
    share = f", {_share(total, work)} of the work" if total else ""
    return f"{len(members):,} {clean(op)} ({kind.value}), {held}{share}"


def _table(members: Sequence[Decision], work: int) -> Table:
    table = words.columns("    layer", "weights", "bytes", "work", right=("bytes", "work"))
    for d in members:
        layer = d.layer
        table.add_row(
            words.indented(_name(layer), 4),
            Text(_weights(layer)),
            Text(size(layer.bytes)),
            Text("?" if layer.macs_per_row is None else _share(layer.macs_per_row, work)),
        )
    return table


def _name(layer: Layer) -> str:
    where = f" (in {clean(layer.scope)})" if layer.scope else ""
    shared = f" (shares weights with {words.names(layer.shares_with)})" if layer.shares_with else ""
    return (clean(layer.name) or "(no name)") + where + shared


def _weights(layer: Layer) -> str:
    dtype = "" if layer.dtype == "float32" else f" {clean(layer.dtype)}"
    return words.shapes(layer.weights) + dtype


def _share(part: int, work: int) -> str:
    if not work or not part:
        return "0%"
    percent = 100 * part / work
    if percent < 0.1:
        return "<0.1%"
    return "100%" if percent == 100 else f"{percent:.1f}%"


def _footnotes(decisions: Sequence[Decision]) -> Iterator[RenderableType]:
    unknown = sum(d.layer.macs_per_row is None for d in decisions)
    yield Text("work: share of the multiply-accumulates for one row of input", style="dim")
    if unknown:
        yield Text(
            f"?: it depends on the size of the input ({count(unknown, 'layer')}, not counted)",
            style="dim",
        )
