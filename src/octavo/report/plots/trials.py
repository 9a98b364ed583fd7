"""A tuning run as a plot: accuracy of each trial against its time, or size if none was timed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.report.plots.style import GOOD, INK, NARROW, OURS, SOFT, WARN, Plot, head, tip
from octavo.results import trial_words as say
from octavo.results.tuning import Trial, TuneResult
from octavo.results.tuning_page import bound_of
from octavo.results.words import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PINNED = 3.0  # what is worse than the floor by more than this many allowances is drawn at the edge
_WORDS = 160  # characters of a recipe

_MARKS = {  # marker, colour, size, label of the legend; what comes later is drawn over the others
    "missed": ("x", WARN, 6, "misses the criterion"),
    "met": ("o", OURS, 6, "meets the criterion"),
    "float": ("D", INK, 8, "float model"),
    "nearest": ("X", WARN, 11, "nearest to the criterion"),
    "best": ("*", GOOD, 16, "best"),
}


@dataclass(frozen=True)
class _Point:
    """A trial's place; `beyond` where it lies further from the criterion than it is drawn."""

    x: float
    y: float
    kind: str
    tip: str
    trial: Trial
    beyond: bool = False


def trials_plot(result: TuneResult, width: float = 8.0, height: float = 4.6) -> Plot | None:
    """Plot the trials' accuracy against time or size over the float model's; None without any."""
    timed = any(trial.time_ratio is not None for trial in result.trials)
    points = list(_points(result, timed))
    if not points:
        return None
    title = f"Accuracy against {'time' if timed else 'size'} of {count(len(points) - 1, 'trial')}"
    return Plot(title, width, height, lambda figure: _paint(figure, title, points, result, timed))


def _floor_of(result: TuneResult) -> float | None:
    """Return the accuracy that just meets the criterion, None where that is unknown."""
    reference = result.baseline.accuracy
    if reference is None or result.bound is None:
        return None
    allowance = result.bound * (abs(reference) if result.relative else 1.0)
    floor = reference - allowance if result.higher_is_better else reference + allowance
    return floor if math.isfinite(floor) else None


def _points(result: TuneResult, timed: bool) -> Sequence[_Point]:
    base, edge = result.baseline, _edge(result)
    worse = min if result.higher_is_better else max
    found = []
    for trial in (base, *result.trials):
        x, y = _across(trial, base, timed), trial.accuracy
        if x is None or y is None or not (math.isfinite(x) and math.isfinite(y)):
            continue
        beyond = edge is not None and y != edge and worse(y, edge) == y
        kind = say.outcome(trial, trial.index == result.best.index) or "float"
        shown = edge if beyond and edge is not None else y
        found.append(_Point(x, shown, kind, _tip(result, trial), trial, beyond))
    return sorted(found, key=lambda point: [*_MARKS].index(point.kind))


def _across(trial: Trial, base: Trial, timed: bool) -> float | None:
    if trial.index == 0:
        return 1.0
    if timed:
        return trial.time_ratio
    return trial.bytes / base.bytes if trial.bytes is not None and base.bytes else None


def _edge(result: TuneResult) -> float | None:
    """Return the accuracy at which worse trials are drawn: they would flatten the others."""
    floor, reference = _floor_of(result), result.baseline.accuracy
    if floor is None or reference is None or floor == reference:
        return None
    return floor - _PINNED * (reference - floor)


def _paint(
    figure: Figure, title: str, points: Sequence[_Point], result: TuneResult, timed: bool
) -> None:
    axes = figure.add_subplot()
    for point in points:
        marker, colour, size, _ = _MARKS[point.kind]
        marker = "v" if point.beyond else marker
        (mark,) = axes.plot(point.x, point.y, marker, color=colour, markersize=size)
        tip(mark, point.tip)
    floor = _floor_of(result)
    if floor is not None:
        axes.axhline(floor, color=WARN, linestyle="--", linewidth=1)
    axes.margins(0.1)
    if not result.higher_is_better:
        axes.invert_yaxis()
    _frontier(axes, [(p.x, p.y) for p in points if not p.beyond], result.higher_is_better)
    for point in points:
        if point.kind in ("best", "nearest", "float"):
            _name(axes, point)
    axes.grid()
    axes.spines[["top", "right"]].set_visible(False)
    head(figure, title, _chosen(result))
    what = "time a run" if timed else "size"
    axes.set_xlabel(f"{what}, float = 1: further left is {'faster' if timed else 'smaller'}")
    less = "" if result.higher_is_better else " (less is better, drawn higher up)"
    axes.set_ylabel(f"{'agreement' if result.status.agreement_only else 'accuracy'}{less}")
    _legend(figure, points, floor)


def _chosen(result: TuneResult) -> str:
    """Describe the best trial in words."""
    best = result.best
    if not best.index:
        return "no trial gave an accuracy"
    said = [f"accuracy {say.accuracy(best.accuracy)}"]
    if best.time_ratio is not None:
        said.append(say.versus_float(best))
    kind = say.outcome(best, best=True)
    words = textwrap.shorten(say.recipe(best), _WORDS, placeholder=" ...")
    return f"{kind}: {words} ({', '.join(said)})"


def _name(axes: Any, point: _Point) -> None:
    """Write a point's kind, such as `best`, on the side where there is room."""
    right = point.x > sum(axes.get_xlim()) / 2
    place, side = ((-10, 9), "right") if right else ((10, 9), "left")
    axes.annotate(
        point.kind, (point.x, point.y), place, textcoords="offset points", ha=side, weight="bold"
    )


def _frontier(axes: Any, places: Sequence[tuple[float, float]], higher: bool) -> None:
    """Draw steps along the points that no other beats in both coordinates."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(places, key=lambda place: (place[0], -place[1] if higher else place[1])):
        if not best or (y > best[-1][1] if higher else y < best[-1][1]):
            best.append((x, y))
    if len(best) > 1:
        axes.step(*zip(*best, strict=True), where="post", color=SOFT, linewidth=1, zorder=1)


def _legend(figure: Figure, points: Sequence[_Point], floor: float | None) -> None:
    lines = [_line(SOFT, "-", "no other is better both ways")]
    if floor is not None:
        lines.append(_line(WARN, "--", f"criterion: {say.accuracy(floor)}"))
    marks = []
    for kind in reversed(dict.fromkeys(point.kind for point in points if not point.beyond)):
        marker, colour, size, label = _MARKS[kind]
        marks.append(_line(colour, "", label, marker, min(size, 10)))
    if any(point.beyond for point in points):
        marks.append(_line(WARN, "", "lies further down than drawn", "v"))
    columns = 3 if figure.get_figwidth() > NARROW else 1
    figure.legend(handles=lines + marks, loc="outside lower center", ncols=columns)


def _line(colour: str, style: str, label: str, marker: str = "", size: float = 6) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        *([], []),
        color=colour,
        linestyle=style,
        linewidth=1,
        label=label,
        marker=marker,
        markersize=size,
    )


def _tip(result: TuneResult, trial: Trial) -> str:
    figures = say.figures((trial,), bound_of(result))
    said = ", ".join(f"{c.heading} {c.text(trial)}" for c in figures)
    words = textwrap.shorten(say.recipe(trial), _WORDS, placeholder=" ...")
    return f"trial {trial.index}: {words}\n{said}" if trial.index else f"the float model\n{said}"
