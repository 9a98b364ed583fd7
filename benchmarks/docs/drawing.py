"""Kinds of plots that documents have, in the style of `octavo.report.plots`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo.report.plots.style import INK, OTHER, OURS, SERIES, SOFT, Plot, decades, head, patch

WIDTH = 8.0
_SERIES = ((OURS, "o"), (OTHER, "s"), (SERIES[2], "D"), (SERIES[3], "^"))
_ABREAST = 3
_RATIOS = (1, 1.25, 1.5, 2, 3, 5)
_PLACES = {
    "right": ((10, 0), "left", "center"),
    "left": ((-10, 0), "right", "center"),
    "above": ((0, 10), "center", "bottom"),
    "below": ((0, -10), "center", "top"),
}  # how far, and which edges of the text are there


@dataclass(frozen=True)
class Drawn:
    """A plot, and the results that it is of; one that `compares_tables` names kernel tables."""

    plot: Plot
    results: tuple[str, ...]
    compares_tables: bool = False


@dataclass(frozen=True)
class Row:
    """A line of a plot: its name, and a figure of each series that has one."""

    name: str
    values: dict[str, float]


@dataclass(frozen=True)
class Point:
    """One of a scatter: its name and second line, and where they stand; `ours` is Octavo's."""

    name: str
    x: float
    y: float
    ours: bool = False
    place: str = "right"  # right, left, above or below
    more: str = ""


@dataclass(frozen=True)
class Panel:
    """One of several plots beside each other: by series a figure for each number."""

    name: str
    series: Mapping[str, Mapping[int, float]]


Limits = tuple[float, float]


def dots(title: str, across: str, rows: Sequence[Row], *, peers_only: bool = False) -> Plot:
    """A row each with a dot a series; 1 is marked: nothing gained.

    With `peers_only` the first series is not Octavo's, and the axis is logarithmic.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    styles = dict(zip(names, _SERIES[peers_only:], strict=False))

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for y, row in enumerate(rows):
            values = [*row.values.values()]
            axes.plot([min(values), max(values)], [y, y], color=SOFT, linewidth=1, zorder=1)
            for name, value in row.values.items():
                colour, marker = styles[name]
                axes.plot(value, y, marker, color=colour, markersize=6)
        if peers_only:
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_xticks(_RATIOS, map(str, _RATIOS))
        axes.set_yticks(range(len(rows)), [row.name for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        _finish(figure, axes, title, across)
        handles = [_dot(*styles[name], name) for name in names]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)

    return Plot(title, WIDTH, 1.2 + 0.2 * len(rows), paint)


def bars(title: str, across: str, rows: Sequence[Row], reference: float | None = 1.0) -> Plot:
    """A group each with a bar a series, and its figure at the end; `reference` is marked."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    count = sum(len(row.values) for row in rows)

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        y, ticks = 0.0, []
        for row in rows:
            ticks.append(y + (len(row.values) - 1) / 2)
            for name, value in row.values.items():
                colour = _SERIES[names.index(name)][0]
                axes.barh(y, value, height=0.85, color=colour, alpha=0.8)
                text = f"{value:.2f}" if value < 10 else f"{value:.0f}"
                axes.annotate(text, (value, y), (5, 0), textcoords="offset points", va="center")
                y += 1
            y += 0.6
        axes.set_yticks(ticks, [row.name for row in rows])
        axes.set_ylim(y - 0.9, -0.7)
        axes.set_xlim(left=0)
        _finish(figure, axes, title, across, reference)
        handles = [patch(_SERIES[i][0], name) for i, name in enumerate(names)]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)

    return Plot(title, WIDTH, 1.2 + 0.24 * (count + 0.6 * len(rows)), paint)


def scatter(
    title: str,
    across: str,
    up: str,
    points: Sequence[Point],
    x_limits: Limits,
    y_limits: Limits,
    reference: float | None = None,
) -> Plot:
    """Points with their names beside them over a logarithmic error axis, the least on top.

    `reference` is float's place across.
    """

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for point in points:
            colour, marker = _SERIES[0] if point.ours else _SERIES[1]
            axes.plot(point.x, point.y, marker, color=colour, markersize=9)
            offset, side, edge = _PLACES[point.place]
            text = f"{point.name}\n{point.more}" if point.more else point.name
            axes.annotate(
                text, (point.x, point.y), offset, textcoords="offset points", ha=side, va=edge
            )
        axes.set(xlim=x_limits, ylim=y_limits, yscale="log", ylabel=up)
        axes.set_yticks(*decades(min(y_limits), max(y_limits)))
        axes.minorticks_off()
        axes.grid(axis="y")
        _finish(figure, axes, title, across, reference)
        if reference is not None:
            axes.annotate(
                "float", (reference, 0.01), (6, 0), textcoords="offset points", color=SOFT
            )

    return Plot(title, WIDTH, 4.6, paint)


def speed_error(title: str, points: Sequence[Point], speeds: Limits, errors: Limits) -> Plot:
    """Speed over float across and error upwards, each point with both in figures."""
    told = [replace(p, more=f"{p.x:.1f}x, error {p.y:.2g}") for p in points]
    across, up = "speed, float = 1: further right is faster", "error: higher up is better"
    return scatter(title, across, up, told, speeds, errors, reference=1)


def fitted(points: Sequence[Point]) -> tuple[list[Point], Limits, Limits]:
    """Points of `speed_error` with places for their names that leave others free, and the axes."""
    errors = [point.y for point in points]
    speeds = [1.0, *(point.x for point in points)]
    span = max(speeds) - min(speeds)

    def crowded(point: Point) -> bool:
        return any(
            0 < other.x - point.x < 0.3 * span and abs(math.log(other.y / point.y)) < 0.6
            for other in points
        )

    placed = [replace(point, place="above" if crowded(point) else "right") for point in points]
    edges = (min(speeds) - 0.1 * span, max(speeds) + 0.4 * span)
    return placed, edges, (3 * max(errors), min(errors) / 3)


def panels(title: str, across: str, up: str, each: Sequence[Panel]) -> Plot:
    """A line a series in each panel, over doubling numbers; all panels have the same axes."""
    names = list(dict.fromkeys(name for panel in each for name in panel.series))
    styles = dict(zip(names, _SERIES, strict=False))
    numbers = sorted({n for panel in each for at in panel.series.values() for n in at})
    top = max(y for panel in each for at in panel.series.values() for y in at.values())
    rows = -(-len(each) // _ABREAST)

    def paint(figure: Any) -> None:
        grid = figure.subplots(rows, _ABREAST, sharex=True, sharey=True, squeeze=False)
        for i, axes in enumerate(grid.flat):
            if i >= len(each):
                axes.remove()
                continue
            for name, at in each[i].series.items():
                colour, marker = styles[name]
                axes.plot([*at], [*at.values()], marker + "-", color=colour, markersize=4)
            axes.set_title(each[i].name, fontsize=10)
            axes.set_xscale("log", base=2)
            axes.set_xticks(numbers, map(str, numbers))
            axes.minorticks_off()
            axes.set_ylim(0, 1.05 * top)
            axes.grid()
            axes.spines[["top", "right"]].set_visible(False)
            if i + _ABREAST >= len(each):
                axes.set_xlabel(across)
                axes.tick_params(labelbottom=True)
        figure.supylabel(up, fontsize=10)
        head(figure, title)
        handles = [_dot(*styles[name], name) for name in names]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(names))

    return Plot(title, WIDTH, 1.0 + 2.3 * rows, paint)


def _finish(figure: Any, axes: Any, title: str, across: str, reference: float | None = 1.0) -> None:
    if reference is not None:
        axes.axvline(reference, color=SOFT, linestyle="--", linewidth=1)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(across)
    head(figure, title)


def _dot(colour: str, marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker=marker, linestyle="", label=label)
