"""The ranges of layers' activations and weights as a section of a page, and what outliers cost.

It depends on how many numbers share the scale that they stretch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from octavo.core.layer import Kind
from octavo.report.html.parts import FIGURE, NAME, RANGE, Cell, Column, Strip, Table
from octavo.results import words
from octavo.results.comparison import OUTLIERS, Comparison, LayerDifference, Range
from octavo.results.report import LayerOutcome, Report
from octavo.results.words import count

_BOX = 3.0  # root mean squares to each side of zero: nearly all of normally distributed numbers
_INPUT_PEAK, _WEIGHT_PEAK = "activation peak", "weight peak"
_PEAK_HINT = "largest absolute value over the root mean square (crest factor)"


def ranges_table(found: Comparison, report: Report | None = None) -> Table | None:
    """Build the table of each layer's ranges in the float model.

    Return None where the ranges were not measured.
    """
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


class _Cost(IntEnum):
    """What shares a scale with an outlier, the costliest last."""

    NOTHING = 0  # it is not held in int8
    OWN = 1  # a row, an output channel, or less
    UNKNOWN = 2
    PART = 3  # one step of the whole batch, or an image
    ASKED = 4  # the whole tensor, as the recipe has it
    FORCED = 5  # the whole tensor, though the recipe asks for less


_INPUTS, _WEIGHTS = "activations", "weights"
_OWN = {
    _INPUTS: ("each row of an activation", "rows"),
    _WEIGHTS: ("each output channel of a weight", "channels"),
}
_STEP = "activations have one scale a step"
_WHOLE = {
    _INPUTS: re.compile("activations per tensor"),
    _WEIGHTS: re.compile(r"one scale for the whole weight|u?int8 per tensor, "),
}
"""How notes begin that say so: they tell what was done, the scheme what was asked."""


def consequence(stretched: Sequence[LayerDifference], report: Report | None) -> str:
    """Say, in sentences, what becomes of layers of which a range is stretched.

    Only what is stretched counts: weights per tensor cost nothing where activations have outliers.
    """
    if report is None:
        return "A scale for each row and each output channel confines that to where they are."
    outcomes = {outcome.layer.name: outcome for outcome in report.quantized}
    found = [_costs(layer, outcomes.get(layer.name)) for layer in stretched]
    return " ".join(_sentences(found))


def _costs(layer: LayerDifference, outcome: LayerOutcome | None) -> Mapping[str, _Cost]:
    """Return the cost of each side of a layer that is stretched: its inputs, its weights."""
    sides = ((_INPUTS, layer.inputs), (_WEIGHTS, layer.weights))
    return {side: _cost(side, layer, outcome) for side, r in sides if r and r.stretched}


def _cost(side: str, layer: LayerDifference, outcome: LayerOutcome | None) -> _Cost:
    if outcome is None:
        return _Cost.UNKNOWN
    if any(_WHOLE[side].match(note) for note in outcome.notes):
        return _Cost.FORCED
    if side == _INPUTS and any(note.startswith(_STEP) for note in outcome.notes):
        return _Cost.PART
    weights, _, inputs = outcome.scheme.partition(", activations")
    _, per, unit = (inputs if side == _INPUTS else weights.partition(",")[0]).partition(" per ")
    if not per:
        return _Cost.NOTHING
    if unit == "tensor":
        return _Cost.ASKED
    image = side == _INPUTS and layer.kind == Kind.CONV.value
    return _Cost.PART if image else _Cost.OWN


def _sentences(found: Sequence[Mapping[str, _Cost]]) -> Iterator[str]:
    """Yield sentences that count each layer once, by the costliest of its sides."""
    worst = [max(costs.values()) for costs in found]
    asked, forced = worst.count(_Cost.ASKED), worst.count(_Cost.FORCED)
    if asked:
        yield (
            f"{_takes(asked)} one scale for a whole tensor and {_pays(asked)} that price; a recipe "
            "with scales per row and per channel (int8) does not."
        )
    if forced:
        yield (
            f"{_takes(forced)} one scale for a whole tensor, though the recipe asks for less, and "
            f"{_pays(forced)} that price: the reason is said under Layers."
        )
    part = worst.count(_Cost.PART)
    if part:
        yield (
            f"{_takes(part)} one activation scale for a step of the whole batch, or for an image: "
            "what stands beside an outlier there pays that price."
        )
    unknown = worst.count(_Cost.UNKNOWN)
    if unknown:
        yield f"Of {unknown:,} the report does not say how scales are shared."
    own = [costs for costs, most in zip(found, worst, strict=True) if most is _Cost.OWN]
    if own:
        yield _little(own, alone=len(own) == len(found))
    nothing = worst.count(_Cost.NOTHING)
    if nothing:
        yield f"It costs {nothing:,} of them nothing: what is stretched there is not held in int8."


def _little(own: Sequence[Mapping[str, _Cost]], *, alone: bool) -> str:
    sides = [side for side in _OWN if any(costs.get(side) is _Cost.OWN for costs in own)]
    what, units = (" and ".join(_OWN[side][i] for side in sides) for i in (0, 1))
    return (
        f"It costs {'' if alone else f'{len(own):,} of them '}little{' here' if alone else ''}: "
        f"{what} has a scale of its own, so that only the {units} with outliers lose by them."
    )


def _takes(n: int) -> str:
    return f"{n:,} of them {'takes' if n == 1 else 'take'}"


def _pays(n: int) -> str:
    return "pays" if n == 1 else "pay"
