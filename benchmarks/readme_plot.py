"""README's plot: speed against error, float's speed being 1."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.docs.drawing import Point as Place
from benchmarks.docs.drawing import scatter
from octavo.report.plots.style import Theme


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
    return "\n".join(_lines(point))


def _lines(point: Point) -> tuple[str, str]:
    return point.name, f"{point.speed:.1f}x, error {point.error:.2g}"


def draw(points: list[Point], theme: str) -> str:
    """An SVG in the colours of `theme`, light or dark, on no background. Text stays text."""
    places = [Place(p.name, p.speed, p.error, p.ours, p.place, _lines(p)[1]) for p in points]
    plot = scatter(
        "",
        "speed, float = 1: further right is faster",
        "error: higher up is better",
        places,
        (0.8, 4.1),
        (0.15, 0.0003),
        reference=1,
    )
    return plot.svg(Theme(theme))
