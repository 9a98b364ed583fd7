"""A comparison as a plot: the error of each output and layer, the worst ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.report.plots.style import (
    INK,
    LINE,
    NARROW,
    OTHER,
    OURS,
    SERIES,
    SOFT,
    WARN,
    Plot,
    decades,
    head,
    tip,
)
from octavo.results import words
from octavo.results.comparison import Comparison, Difference, LayerDifference
from octavo.results.names import shortened
from octavo.results.words import count, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAYERS = 24  # that are shown, the worst
_OUTPUTS = 6
_ROW, _HIGH_ROW = 0.24, 0.36  # inches; a high one has its name above its dots
_OUTPUT, _ALONE, _ACCUMULATED = ("D", SERIES[2]), ("o", OURS), ("s", OTHER)


@dataclass(frozen=True)
class _Row:
    """A name with its errors, each with how it is marked."""

    name: str
    marks: tuple[tuple[Difference, tuple[str, str], str], ...]
    blamed: bool = False


def errors_plot(found: Comparison, width: float = 8.0) -> Plot | None:
    """Dots over a logarithmic axis: outputs, then layers, the worst first; None without any.

    `width` is in inches; narrow plots have names above the dots, and half as many layers.
    """
    outputs = [(o.name, o.difference) for o in found.outputs if o.difference is not None]
    outputs.sort(key=lambda output: -output[1].error)
    layers = [layer for layer in found.layers if layer.alone or layer.accumulated]
    wide = width > NARROW
    most = _LAYERS if wide else _LAYERS // 2
    rows = [
        *(_Row(words.name(name), ((d, _OUTPUT, "error"),)) for name, d in outputs[:_OUTPUTS]),
        *(_layer(layer, layer is found.suspect) for layer in layers[:most]),
    ]
    if not rows:
        return None
    shown = min(_OUTPUTS, len(outputs))
    title = f"Error of {_some(shown, len(outputs), 'output')} and "
    title += _some(len(rows) - shown, len(layers), "quantized layer")
    return Plot(
        title,
        width,
        1.5 + (_ROW if wide else _HIGH_ROW) * (len(rows) + 1),
        lambda figure: _paint(figure, title, rows, shown, found.median_sqnr_db),
    )


def _some(shown: int, there: int, noun: str) -> str:
    """Say how many are shown: `3 layers`, `the worst 24 of 74 layers`."""
    return count(there, noun) if shown == there else f"the worst {shown} of {count(there, noun)}"


def _layer(layer: LayerDifference, blamed: bool) -> _Row:
    both = ((layer.accumulated, _ACCUMULATED, "accumulated"), (layer.alone, _ALONE, "alone"))
    marks = tuple((d, style, what) for d, style, what in both if d is not None)
    return _Row(words.name(layer.name), marks, blamed)


def _paint(
    figure: Figure, title: str, rows: Sequence[_Row], outputs: int, median_db: float | None
) -> None:
    axes = figure.add_subplot()
    wide = figure.get_figwidth() > NARROW
    low, high = _bounds(d.error for row in rows for d, _, _ in row.marks)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xlim(low / 1.4, high * 1.4)
    axes.set_xticks(*decades(low, high, most=8 if wide else 4))
    places = [i + (0.8 if outputs and i >= outputs else 0) for i in range(len(rows))]
    for y, row in zip(places, rows, strict=True):
        for difference, (marker, colour), what in row.marks:
            at = min(max(difference.error, low), high)
            (mark,) = axes.plot(at, y, marker, color=colour, markersize=6)
            tip(mark, f"{row.name}, {what}: {_error(difference)}")
            if not low <= difference.error <= high:
                _beside(axes, at, y, difference)
    axes.set_ylim(places[-1] + 0.6, -0.6 if wide else -0.9)
    _names(axes, places, rows, wide)
    axes.grid(axis="both")
    axes.spines[["top", "right"]].set_visible(False)
    if outputs and outputs < len(rows):
        axes.axhline(outputs - 0.1, color=LINE, linewidth=1)
    if median_db is not None and math.isfinite(median_db) and len(rows) - outputs > 1:
        error = 0.5 * 10 ** (-median_db / 10)
        axes.axvline(error, color=SOFT, linestyle="--", linewidth=1)
    head(figure, title)
    gap = " " if wide else "\n"
    axes.set_xlabel(f"error (1 - cosine where small):{gap}further left is better")
    _legend(figure, rows, outputs, median_db)


def _names(axes: Any, places: Sequence[float], rows: Sequence[_Row], wide: bool) -> None:
    """Beside the rows, or in narrow plots within, above the dots."""
    names = shortened([row.name for row in rows], 44)
    axes.set_yticks(places, names if wide else [""] * len(rows))
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    for tick, y, name, row in zip(axes.get_yticklabels(), places, names, rows, strict=True):
        style = {"color": WARN, "weight": "bold"} if row.blamed else {}
        if wide:
            tick.set(**style)
        else:
            across = axes.get_yaxis_transform()
            axes.text(0.01, y - 0.28, name, transform=across, fontsize=8, **style)


def _legend(figure: Figure, rows: Sequence[_Row], outputs: int, median_db: float | None) -> None:
    from matplotlib.lines import Line2D

    def key(style: tuple[str, str], label: str) -> Any:
        return Line2D([], [], marker=style[0], color=style[1], linestyle="", label=label)

    handles = [key(_OUTPUT, "output of the model")] if outputs else []
    if outputs < len(rows):
        handles.append(key(_ALONE, "layer alone, on the float model's inputs"))
        handles.append(key(_ACCUMULATED, "with the error of what comes before it"))
    if median_db is not None and len(rows) - outputs > 1:
        label = "median of layers alone"
        handles.append(Line2D([], [], color=SOFT, linestyle="--", linewidth=1, label=label))
    columns = 2 if figure.get_figwidth() > NARROW else 1
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _bounds(errors: Iterable[float]) -> tuple[float, float]:
    """Return the axis' bounds: whole powers of ten around the errors that a log axis can show."""
    shown = [e for e in errors if 0 < e < math.inf] or [1e-6, 1e-3]
    low = math.floor(math.log10(max(min(shown), max(shown) * 1e-12)))
    return 10.0**low, 10.0 ** max(low + 1, math.ceil(math.log10(max(shown))))


def _error(difference: Difference) -> str:
    return "not finite" if difference.non_finite else number(difference.error)


def _beside(axes: Any, x: float, y: float, difference: Difference) -> None:
    """Annotate a point that lies beyond the axis: no error, or numbers that are not finite."""
    right = difference.error > x
    said = ("not finite" if difference.non_finite else "beyond") if right else "none"
    place, side = ((-8, 0), "right") if right else ((8, 0), "left")
    axes.annotate(said, (x, y), place, textcoords="offset points", ha=side, va="center", fontsize=9)
