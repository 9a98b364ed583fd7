"""Speed against error as a picture: README's and the demo's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.docs.drawing import Point as Place
from benchmarks.docs.drawing import scatter
from octavo.report.plots.style import Plot, Theme


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
    return f"{point.name}\n{_more(point)}"


def _more(point: Point) -> str:
    return f"{point.speed:.1f}x, error {point.error:.2g}"


@dataclass(frozen=True)
class Frame:
    """What the axes span, from the lower left to the upper right: errors fall upwards."""

    speeds: tuple[float, float] = (0.8, 4.1)
    errors: tuple[float, float] = (0.15, 0.0002)


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
    return _plot(points, frame).svg(Theme(theme))


def draw_png(points: Sequence[Point], frame: Frame = README) -> bytes:
    """A PNG in light colours on white."""
    return _plot(points, frame).png()


def _plot(points: Sequence[Point], frame: Frame) -> Plot:
    return scatter(
        "",
        "speed, float = 1: further right is faster",
        "error: higher up is better",
        [Place(p.name, p.speed, p.error, p.ours, p.place, _more(p)) for p in points],
        frame.speeds,
        frame.errors,
        reference=1,
    )
