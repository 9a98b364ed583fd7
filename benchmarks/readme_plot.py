"""Speed against error as a picture, by Matplotlib: the same bytes from the same points."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

COLOURS = {
    "light": {
        "ink": "#24292f",
        "soft": "#6e7781",
        "line": "#d0d7de",
        "ours": "#4051b5",
        "other": "#c2410c",
    },
    "dark": {
        "ink": "#e6edf3",
        "soft": "#9198a1",
        "line": "#3d444d",
        "ours": "#9fa8ff",
        "other": "#fb923c",
    },
}


_PLACES = {
    "right": ((10, 0), "left", "center"),
    "left": ((-10, 0), "right", "center"),
    "above": ((0, 10), "center", "bottom"),
    "below": ((0, -10), "center", "top"),
}  # how far, and which edges of the text are there


@dataclass(frozen=True)
class Point:
    """One way to run the model: how many times as fast as float, and its error."""

    name: str
    speed: float
    error: float
    ours: bool = False
    place: str = "right"  # of its name: right, left, above or below


def label(point: Point) -> str:
    """What stands beside it, in two lines."""
    return f"{point.name}\n{point.speed:.1f}x, error {point.error:.2g}"


@dataclass(frozen=True)
class Frame:
    """What the axes span, from the lower left to the upper right: errors fall upwards."""

    speeds: tuple[float, float] = (0.8, 4.1)
    errors: tuple[float, float] = (0.15, 0.0003)


README = Frame()


def fitted(points: Sequence[Point]) -> tuple[list[Point], Frame]:
    """The axes of any points, which are given places for their names that leave others free."""
    errors = [point.error for point in points]
    speeds = [1.0, *(point.speed for point in points)]
    span = max(speeds) - min(speeds)

    def crowded(point: Point) -> bool:
        return any(
            0 < other.speed - point.speed < 0.3 * span
            and abs(math.log(other.error / point.error)) < 0.6
            for other in points
        )

    placed = [replace(point, place="above" if crowded(point) else "right") for point in points]
    edges = (min(speeds) - 0.1 * span, max(speeds) + 0.4 * span)
    return placed, Frame(edges, (3 * max(errors), min(errors) / 3))


def draw(points: Sequence[Point], theme: str, frame: Frame = README) -> str:
    """An SVG in the colours of `theme`, light or dark, on no background. Text stays text."""
    svg = _file(points, theme, frame, "svg", transparent=True, metadata={"Date": None}).decode()
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def draw_png(points: Sequence[Point], frame: Frame = README) -> bytes:
    """A PNG in light colours on white."""
    return _file(points, "light", frame, "png", dpi=150, metadata={"Software": None})


def _file(points: Sequence[Point], theme: str, frame: Frame, kind: str, **options: Any) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    colours = COLOURS[theme]
    settings = {
        "svg.hashsalt": "octavo",
        "svg.fonttype": "none",
        "text.color": colours["ink"],
        "axes.labelcolor": colours["ink"],
        "axes.edgecolor": colours["line"],
        "xtick.color": colours["soft"],
        "ytick.color": colours["soft"],
        "font.size": 11,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(8, 3.9), layout="constrained")
        _paint(figure.add_subplot(), points, colours, frame)
        out = io.BytesIO()
        figure.savefig(out, format=kind, **options)
    return out.getvalue()


def _paint(axes: Any, points: Sequence[Point], colours: dict[str, str], frame: Frame) -> None:
    for point in points:
        colour = colours["ours" if point.ours else "other"]
        axes.plot(point.speed, point.error, "o" if point.ours else "s", color=colour, markersize=9)
        offset, across, down = _PLACES[point.place]
        axes.annotate(
            label(point),
            (point.speed, point.error),
            offset,
            textcoords="offset points",
            ha=across,
            va=down,
            fontsize=10,
        )
    worst, best = frame.errors
    axes.axvline(1, color=colours["soft"], linestyle="--")
    middle = 0.01 if frame is README else math.sqrt(worst * best)
    axes.annotate("float", (1, middle), (6, 0), textcoords="offset points", color=colours["soft"])
    axes.set(xlim=frame.speeds, ylim=frame.errors, yscale="log")
    axes.set_xlabel("speed, float = 1: further right is faster")
    axes.set_ylabel("error: higher up is better")
    powers = range(math.floor(math.log10(worst)), math.ceil(math.log10(best)) - 1, -1)
    ticks = [10.0**power for power in powers if best <= 10.0**power <= worst]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(color=colours["line"], linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
