"""Points over two axes as coordinates of a picture; the template `picture.html` draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_PINNED = 6.0  # what is worse than the limit by more than this many allowances is drawn at the edge


@dataclass(frozen=True)
class Point:
    """What is plotted: `kind` is a word that the legend explains, `title` the tooltip."""

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True)
class Axes:
    """What the axes show. Up is better: `y_falls` where smaller values of y are.

    `limit` is where y just meets the criterion, `reference` the float model's y.
    """

    x_label: str
    y_label: str
    y_falls: bool = False
    limit: float | None = None
    reference: float | None = None


@dataclass(frozen=True)
class Mark:
    """A point in the picture; `beyond` the lower edge it lies further down than it is drawn."""

    x: float
    y: float
    kind: str
    title: str
    beyond: bool = False


@dataclass(frozen=True)
class Tick:
    """A number on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Plot:
    """A picture of `width` by `height`; the axes span left..right and top..bottom."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    limit: float | None
    frontier: str

    @property
    def beyond(self) -> int:
        """How many points are drawn at the lower edge."""
        return sum(mark.beyond for mark in self.marks)


# docs/notes/reports.md: "Pictures are a few lines of templates"
def plot(points: Sequence[Point], axes: Axes, width: int, height: int) -> Plot | None:
    """The picture of the points that are finite; None without any."""
    points = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    if not points:
        return None
    left, right, top, bottom = 64, width - 16, 14, height - 46
    sign = -1.0 if axes.y_falls else 1.0
    floor = _floor(axes, sign)
    ys = [max(floor, sign * p.y) for p in points]
    wanted = [sign * axes.limit] if axes.limit is not None and math.isfinite(axes.limit) else []
    x_low, x_high = _padded([p.x for p in points])
    y_low, y_high = _padded([*ys, *wanted])

    def across(x: float) -> float:
        return round(left + (x - x_low) / (x_high - x_low) * (right - left), 1)

    def up(y: float) -> float:
        return round(bottom - (y - y_low) / (y_high - y_low) * (bottom - top), 1)

    marks = [
        Mark(across(p.x), up(y), p.kind, p.title, beyond=sign * p.y < floor)
        for p, y in zip(points, ys, strict=True)
    ]
    # What stands out is drawn last, over the others.
    order = ("missed", "met", "float", "nearest", "best")
    marks.sort(key=lambda mark: order.index(mark.kind))
    y_values = ticks(y_low, y_high, 5)
    return Plot(
        *(width, height, left, right, top, bottom),
        axes.x_label,
        axes.y_label,
        tuple(Tick(across(x), text) for x, text in ticks(x_low, x_high, max(3, width // 110))),
        tuple(Tick(up(y), text.removeprefix("-") if sign < 0 else text) for y, text in y_values),
        tuple(marks),
        up(wanted[0]) if wanted else None,
        _frontier([(mark.x, mark.y) for mark in marks if not mark.beyond]),
    )


def ticks(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Round numbers between `low` and `high`, about as many as asked, with their texts."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(i * step, f"{i * step + 0.0:,.{digits}f}") for i in range(first, last + 1)]


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    span = high - low or abs(high) * 0.1 or 1.0
    return low - 0.08 * span, high + 0.08 * span


def _floor(axes: Axes, sign: float) -> float:
    """Below it (up being better) points are drawn at the edge: they would flatten the others."""
    if axes.limit is None or axes.reference is None:
        return -math.inf
    allowance = abs(axes.reference - axes.limit)
    return sign * axes.limit - _PINNED * allowance if allowance > 0 else -math.inf


def _frontier(places: Sequence[tuple[float, float]]) -> str:
    """An SVG path in steps along the points that no other beats in both x and y."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(places):
        if not best or y < best[-1][1]:
            best.append((x, y))
    if len(best) < 2:
        return ""
    steps = "".join(f"H{x:g}V{y:g}" for x, y in best[1:])
    return f"M{best[0][0]:g} {best[0][1]:g}{steps}"
