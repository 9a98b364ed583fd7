"""The ranges of layers' activations and weights as a section of a page, outliers marked."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.report.html.outliers import consequence
from octavo.report.html.parts import FIGURE, NAME, RANGE, Cell, Column, Strip, Table
from octavo.results import words
from octavo.results.comparison import OUTLIERS, Comparison, LayerDifference, Range
from octavo.results.report import Report
from octavo.results.words import count

_BOX = 3.0  # root mean squares to each side of zero: nearly all of normally distributed numbers
_INPUT_PEAK, _WEIGHT_PEAK = "activation peak", "weight peak"
_PEAK_HINT = "largest absolute value over the root mean square (crest factor)"


def ranges_table(found: Comparison, report: Report | None = None) -> Table | None:
    """Each layer's ranges as they are in the float model; None where they were not measured."""
    layers = [layer for layer in found.layers if layer.inputs or layer.weights]
    if not layers:
        return None
    activations = any(layer.inputs for layer in layers)
    layers.sort(
        key=lambda layer: _peak(layer.inputs if activations else layer.weights), reverse=True
    )
    columns = (
        Column("layer", NAME),
        Column("activations", RANGE, "lowest and highest number that enters the layer"),
        Column(_INPUT_PEAK, FIGURE, _PEAK_HINT),
        Column("weights", RANGE, "lowest and highest weight"),
        Column(_WEIGHT_PEAK, FIGURE, _PEAK_HINT),
    )
    return Table(
        "ranges",
        "Ranges",
        columns,
        tuple(tuple(_row(layer)) for layer in layers),
        "layers",
        intro=" ".join(_intro(layers, report)),
        how=_HOW,
        falling=_INPUT_PEAK if activations else _WEIGHT_PEAK,
    )


def _peak(r: Range | None) -> float:
    return -1.0 if r is None else r.peak


def _row(layer: LayerDifference) -> Iterator[Cell]:
    yield Cell(words.name(layer.name))
    for r in (layer.inputs, layer.weights):
        yield _reach(r)
        yield _crest(r)


def _reach(r: Range | None) -> Cell:
    if r is None:
        return Cell("")
    return Cell(f"{_number(r.low)} to {_number(r.high)}", r.largest, strip=_strip(r))


def _crest(r: Range | None) -> Cell:
    if r is None:
        return Cell("")
    few = f"{r.outliers:,} of {r.values:,} beyond {OUTLIERS:g} rms"
    return Cell(
        f"{r.peak:.1f}",
        r.peak,
        tone="warn" if r.stretched else "",
        mark="outliers" if r.stretched else "",
        detail=few if r.stretched and r.outliers else "",
    )


def _strip(r: Range) -> Strip | None:
    if not r.largest > 0:
        return None
    box = min(1.0, _BOX * r.rms / r.largest)
    low, high = r.low / r.largest, r.high / r.largest
    return Strip(low, high, max(-box, min(low, 0.0)), min(box, max(high, 0.0)))


def _number(x: float) -> str:
    return f"{x + 0.0:.3g}"


_HOW = (
    "What the float model feeds each layer, and its weights: a line from the lowest to the highest "
    f"number, a box of {_BOX:g} root mean squares (rms) around zero, each drawn to its own largest "
    "number, zero in the middle. Peak is the largest number in rms: 4 to 6 where numbers are "
    "normally distributed."
)


def _intro(layers: list[LayerDifference], report: Report | None) -> Iterator[str]:
    stretched = [v for v in layers if any(r and r.stretched for r in (v.inputs, v.weights))]
    if not stretched:
        yield f"No range is stretched by outliers (a peak of {OUTLIERS:g} or more)."
        return
    yield (
        f"{count(len(stretched), 'layer')} with outliers, a peak of {OUTLIERS:g} or more: one int8 "
        "scale over all numbers would leave them less than four bits' worth."
    )
    yield consequence(stretched, report)
