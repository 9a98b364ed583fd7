"""A comparison of two models as text for people: outputs, then the layers, the worst first.

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

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from octavo.recipe.comparison import Comparison, Difference, LayerDifference, OutputDifference
from octavo.recipe.ranges import Range
from octavo.report import text as words
from octavo.report.difference_words import decibels, not_finite, to_blame, typical
from octavo.report.names import shortened
from octavo.report.text import clean, count, number

SHOWN = 20
"""Layers in the table that is not verbose."""

STRETCHED = 3
"""Ranges that the verbose page names."""


def comparison_text(found: Comparison, verbose: bool = False) -> str:
    """The comparison as plain text; `verbose` names every layer."""
    return words.plain(list(_page(found, verbose)))


def print_comparison(found: Comparison, console: Console, verbose: bool = False) -> None:
    """Prints the comparison; `verbose` names every layer."""
    words.show(list(_page(found, verbose)), console)


def _page(found: Comparison, verbose: bool) -> Iterator[RenderableType]:
    names = f"{clean(found.float_model)} and {clean(found.quantized_model)}"
    yield Text(f"{names}, target {clean(found.target)}", style="bold")
    yield Text(f"{count(found.runs, 'run')} on inputs {clean(found.inputs)}")
    yield Text()
    yield _output_table(found.outputs)
    yield Text()
    left = f", and {found.left_float:,} left float" if found.left_float else ""
    yield Text(f"Quantized layers: {len(found.layers):,}{left}", style="bold")
    shown = found.layers if verbose else found.layers[:SHOWN]
    yield _layer_table(shown, verbose)
    if len(shown) < len(found.layers):
        yield Text(f"and {len(found.layers) - len(shown):,} more, which are better: --verbose")
    yield Text()
    notes = [*_noted(shown), *(_stretched(found.layers) if verbose else ())]
    yield from [*notes, Text()] if notes else []
    if found.notes:
        yield Text("Notes", style="bold")
        yield from (words.indented(clean(note), 4, "-") for note in found.notes)
        yield Text()
    yield Text(_verdict(found))


def _output_table(outputs: Sequence[OutputDifference]) -> Table:
    has_scores = any(output.agreement is not None for output in outputs)
    figures = ("SQNR", "cosine", "max error", *["top-1"] * has_scores)
    table = words.columns("output", *figures, "", right=figures)
    for output in outputs:
        d = output.difference
        table.add_row(
            Text(clean(output.name)),
            Text(decibels(d)),
            Text("" if d is None or d.cosine is None else f"{d.cosine:.6f}"),
            Text(_largest(d)),
            *[Text("" if output.agreement is None else f"{output.agreement:.1%}")] * has_scores,
            Text("; ".join(part for part in (clean(output.note), not_finite(d)) if part)),
        )
    return table


def _layer_table(layers: Sequence[LayerDifference], verbose: bool) -> Table:
    names = [layer.name for layer in layers]
    figures = ("alone", "max error", "accumulated")
    table = words.columns("layer", "op", *figures, right=figures)
    for name, layer in zip(names if verbose else shortened(names), layers, strict=True):
        table.add_row(
            Text(clean(name)),
            Text(clean(layer.op.rpartition(".")[2])),
            Text(decibels(layer.alone)),
            Text(_largest(layer.alone)),
            Text(decibels(layer.accumulated)),
        )
    return table


def _largest(d: Difference | None) -> str:
    return "" if d is None else number(d.max_error)


def _noted(layers: Sequence[LayerDifference]) -> Iterator[RenderableType]:
    for layer in layers:
        said = [
            *layer.notes,
            *(f"alone: {text}" for text in [not_finite(layer.alone)] if text),
            *(f"accumulated: {text}" for text in [not_finite(layer.accumulated)] if text),
        ]
        for note in said:
            yield words.indented(f"{clean(layer.name)}: {clean(note)}", 4, "-")


def _stretched(layers: Sequence[LayerDifference]) -> Iterator[RenderableType]:
    """The ranges that outliers stretch most; what several layers read is named once."""
    found: dict[tuple[str, Range], list[str]] = {}
    for layer in layers:
        for what, held in (("activations", layer.inputs), ("weights", layer.weights)):
            if held is not None and held.stretched:
                found.setdefault((what, held), []).append(layer.name)
    worst = sorted(found.items(), key=lambda item: item[0][1].peak, reverse=True)
    for (what, held), names in worst[:STRETCHED]:
        said = f"{what} of {words.names(names, 1)} reach {held.largest:.3g}, {held.peak:.0f} times "
        said += "their root mean square: one scale for all of them would leave few bits"
        yield words.indented(said, 4, "-")
    if len(worst) > STRETCHED:
        yield words.indented(f"and {len(worst) - STRETCHED:,} more such ranges: --json", 4, "-")


def _verdict(found: Comparison) -> str:
    """The layer to look at first, where one stands out."""
    worst, blamed = found.layers[0], to_blame(found)
    if worst.alone is None:
        return "No layer could be measured alone"
    if worst.alone.non_finite:
        return f"Look first at {clean(worst.name)}: fed finite numbers, it gives others"
    middle = words.decibels(typical(found))
    if blamed is not None:
        return (
            f"Look first at {clean(worst.name)}: alone it has {decibels(worst.alone)}; the "
            f"median of all layers is {middle}"
        )
    if sum(layer.alone is not None for layer in found.layers) > 1:
        return (
            f"No layer stands out: the worst has {decibels(worst.alone)} alone, the median {middle}"
        )
    return f"One layer: {decibels(worst.alone)} alone"
