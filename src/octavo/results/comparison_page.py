"""A comparison of two models as a page: outputs, then the layers, the worst first.

model.onnx and model.int8.onnx, target portable
1 run on inputs made up

output          SQNR    cosine  max error  top-1
last_hidden   27.1 dB  0.99903       0.31  98.4%

Quantized layers: 36, and 14 left float
layer                        alone  max error  accumulated
/encoder/layer.3/.../MatMul   0.3 dB        4.1       0.2 dB
...
Look first at /encoder/layer.3/.../MatMul: alone it has 0.3 dB, half of the layers 38.2 dB or more
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from octavo.results import words
from octavo.results.names import shortened
from octavo.results.page import Part, Table, columns, indented, line, noted
from octavo.results.words import clean, count, number, padding

if TYPE_CHECKING:
    from octavo.results.comparison import (
        Comparison,
        Difference,
        LayerDifference,
        OutputDifference,
        Range,
    )

SHOWN = 20
"""Layers in the table that is not verbose."""

STRETCHED = 3
"""Ranges that the verbose page names."""


def comparison_page(found: Comparison, verbose: bool) -> Iterator[Part]:
    """Lay the comparison out as a page; `verbose` names every layer."""
    names = f"{clean(found.float_model)} and {clean(found.quantized_model)}"
    yield line(f"{names}, target {clean(found.target)}", style="bold")
    left_out = padding(found.padding)
    yield line(f"{count(found.runs, 'run')} on inputs {clean(found.inputs)}{left_out}")
    yield line("")
    yield _output_table(found.outputs)
    yield line("")
    left = f", and {found.left_float:,} left float" if found.left_float else ""
    yield line(f"Quantized layers: {len(found.layers):,}{left}", style="bold")
    shown = found.layers if verbose else found.layers[:SHOWN]
    yield _layer_table(shown, verbose)
    if len(shown) < len(found.layers):
        yield line(f"and {len(found.layers) - len(shown):,} more, which are better: --verbose")
    yield line("")
    remarks = [*_layer_notes(shown), *(_stretched(found.layers) if verbose else ())]
    yield from [*remarks, line("")] if remarks else []
    if found.notes:
        yield from noted([clean(note) for note in found.notes])
        yield line("")
    yield line(_verdict(found))


def _output_table(outputs: Sequence[OutputDifference]) -> Table:
    has_scores = any(output.agreement is not None for output in outputs)
    figures = ("SQNR", "cosine", "max error", *["top-1"] * has_scores)
    table = columns("output", *figures, "", right=figures)
    for output in outputs:
        d = output.difference
        table.add_row(
            clean(output.name),
            decibels(d),
            "" if d is None else words.alike(d.cosine, d.error),
            _largest(d),
            *["" if output.agreement is None else words.share(output.agreement)] * has_scores,
            "; ".join(part for part in (clean(output.note), not_finite(d)) if part),
        )
    return table


def _layer_table(layers: Sequence[LayerDifference], verbose: bool) -> Table:
    names = [layer.name for layer in layers]
    figures = ("alone", "max error", "accumulated")
    table = columns("layer", "op", *figures, right=figures)
    for name, layer in zip(names if verbose else shortened(names), layers, strict=True):
        table.add_row(
            clean(name),
            clean(layer.op.rpartition(".")[2]),
            decibels(layer.alone),
            _largest(layer.alone),
            decibels(layer.accumulated),
        )
    return table


def _largest(d: Difference | None) -> str:
    return "" if d is None else number(d.max_error)


def decibels(d: Difference | None) -> str:
    """Format the SQNR of a difference; `-` where nothing could be compared.

    Examples are `41.2 dB`, `exact`, `no signal` and `not finite`.
    """
    if d is None:
        return "-"
    if d.non_finite or not d.values:
        return "not finite"
    return "no signal" if d.sqnr_db == -math.inf else words.decibels(d.sqnr_db)


def not_finite(d: Difference | None) -> str:
    """Say in words which numbers are not finite."""
    said = []
    if d is not None and d.non_finite:
        of = count(d.values, "number")
        said.append(f"{d.non_finite:,} of {of} are not finite, which the float model's are")
    if d is not None and d.float_non_finite:
        said.append(
            f"{count(d.float_non_finite, 'number')} not finite in the float model, left out"
        )
    return "; ".join(said)


def layer_notes(layer: LayerDifference) -> list[str]:
    """List what is to be said of a layer: its notes, and which numbers are not finite."""
    each = (("alone", layer.alone), ("accumulated", layer.accumulated))
    return [*layer.notes, *(f"{what}: {not_finite(d)}" for what, d in each if not_finite(d))]


def _layer_notes(layers: Sequence[LayerDifference]) -> Iterator[Part]:
    for layer in layers:
        for note in layer_notes(layer):
            yield indented(f"{clean(layer.name)}: {clean(note)}", 4, "-")


def _stretched(layers: Sequence[LayerDifference]) -> Iterator[Part]:
    """Yield the ranges that outliers stretch most; one that several layers have is named once."""
    found: dict[tuple[str, Range], list[str]] = {}
    for layer in layers:
        for what, r in (("activations", layer.inputs), ("weights", layer.weights)):
            if r is not None and r.stretched:
                found.setdefault((what, r), []).append(layer.name)
    worst = sorted(found.items(), key=lambda item: item[0][1].peak, reverse=True)
    for (what, r), names in worst[:STRETCHED]:
        said = f"{what} of {words.names(names, 1)} reach {r.largest:.3g}, {r.peak:.0f} times "
        said += "their root mean square: one scale for all of them would leave few bits"
        yield indented(said, 4, "-")
    if len(worst) > STRETCHED:
        yield indented(f"and {len(worst) - STRETCHED:,} more such ranges: --json", 4, "-")


def _verdict(found: Comparison) -> str:
    """Name the layer to look at first, where one stands out."""
    worst = found.layers[0]
    if worst.alone is None:
        return "No layer could be measured alone"
    if worst.alone.non_finite:
        return f"Look first at {clean(worst.name)}: fed finite numbers, it gives others"
    sqnr, middle = decibels(worst.alone), words.decibels(found.median_sqnr_db)
    if found.suspect is not None:
        return (
            f"Look first at {clean(worst.name)}: alone it has {sqnr}; the "
            f"median of all layers is {middle}"
        )
    if sum(layer.alone is not None for layer in found.layers) > 1:
        return f"No layer stands out: the worst has {sqnr} alone, the median {middle}"
    return f"One layer: {sqnr} alone"
