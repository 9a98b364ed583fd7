"""Kinds of plots that documents have, in the style of `octavo.report.plots`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.report.plots.style import INK, OTHER, OURS, SERIES, SOFT, Plot, decades, head, patch

WIDTH = 8.0
_SERIES = ((OURS, "o"), (OTHER, "s"), (SERIES[2], "D"), (SERIES[3], "^"))
_RATIOS = (1, 1.25, 1.5, 2, 3, 5)
_PLACES = {
    "right": ((10, 0), "left", "center"),
    "left": ((-10, 0), "right", "center"),
    "above": ((0, 10), "center", "bottom"),
    "below": ((0, -10), "center", "top"),
}  # how far, and which edges of the text are there


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
    x_limits: tuple[float, float],
    y_limits: tuple[float, float],
    reference: float | None = None,
) -> Plot:
    """Points with their names beside them over a logarithmic error axis, the least on top.

    `reference` is float's place across. Where there is an empty `title` none is drawn.
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

    return Plot(title or up, WIDTH, 3.9 if not title else 4.6, paint)


def _finish(figure: Any, axes: Any, title: str, across: str, reference: float | None = 1.0) -> None:
    if reference is not None:
        axes.axvline(reference, color=SOFT, linestyle="--", linewidth=1)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(across)
    if title:
        head(figure, title)


def _dot(colour: str, marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker=marker, linestyle="", label=label)
