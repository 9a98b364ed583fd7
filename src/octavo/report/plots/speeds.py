"""A benchmark as a plot: how many times as fast as the first model each other one is, by shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.report.plots.style import INK, SERIES, SOFT, Plot, head, patch, tip
from octavo.results import words
from octavo.results.benchmark import CONFIDENCE, Benchmark, Pair, Timed, conditions, short_names
from octavo.results.names import grouped, shortened
from octavo.results.words import clean, count, latency

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR = 0.26  # inches of a bar
_GAP = 0.7  # bars between groups


@dataclass(frozen=True)
class _Group:
    """What was timed on inputs of one shape, with one number of threads."""

    label: str
    models: tuple[Timed, ...]
    pairs: dict[str, Pair]  # of the first model and this one


@dataclass(frozen=True)
class _Speed:
    """The length of a bar, its whisker's ends, and what stands beside it."""

    value: float
    low: float
    high: float
    text: str


def speeds_plot(found: Benchmark) -> Plot:
    """Bars of the models' speeds, the first one's being 1; of one model alone, of its latency."""
    names = list(dict.fromkeys(one.name for one in found.models))
    short = short_names(names)
    cut = shortened([words.name(short[name]) for name in names], 40)
    labels = dict(zip(names, cut, strict=True))
    groups, same = _groups(found)
    first = labels[names[0]]
    what = f"Latency of {first}" if len(names) == 1 else f"Speed, {first} = 1"
    title = ", ".join(filter(None, (what, same)))
    bars = sum(_GAP + len(group.models) for group in groups)
    keys = 0 if len(names) == 1 else math.ceil(len(names) / _columns(labels))
    return Plot(
        title,
        8.0,
        1.1 + _BAR * bars + 0.2 * keys,
        lambda figure: _paint(figure, title, groups, labels),
    )


def _columns(labels: dict[str, str]) -> int:
    """Count the columns of the legend."""
    return max(1, 90 // (8 + max(map(len, labels.values()))))


def _groups(found: Benchmark) -> tuple[list[_Group], str]:
    """Return the groups, each labelled with what sets it apart, and what all have in common."""
    made = grouped(found.models, lambda one: (one.shape, one.threads))
    shapes, threads = ({key[i] for key, _ in made} for i in (0, 1))
    groups = []
    for (shape, count_), models in made:
        pairs = {
            pair.b: pair
            for pair in found.rows
            if (pair.shape, pair.threads, pair.a) == (shape, count_, models[0].name)
        }
        parts = (_sizes(shape) if len(shapes) > 1 else "", _threads(count_) * (len(threads) > 1))
        groups.append(_Group("\n".join(filter(None, parts)), tuple(models), pairs))
    (shape, count_), _ = made[0]
    inputs = _sizes(shape) if len(shapes) == 1 else ""
    return groups, conditions(inputs, count_ if len(threads) == 1 else None)


def _sizes(shape: str) -> str:
    """Shorten `ids=1x128,mask=1x128` to `1x128`: the sizes alone where they are all alike."""
    sizes = {part.rpartition("=")[2] for part in shape.split(",")}
    return sizes.pop() if len(sizes) == 1 else clean(shape).replace(",", ",\n")


def _threads(threads: int | None) -> str:
    return "threads as chosen" if threads is None else count(threads, "thread")


def _paint(figure: Figure, title: str, groups: Sequence[_Group], labels: dict[str, str]) -> None:
    axes = figure.add_subplot()
    first, *others = labels
    rest = (SERIES[i % len(SERIES)] for i in range(len(others)))
    colours = {first: SOFT if others else SERIES[0], **dict(zip(others, rest, strict=True))}
    ticks, y = [], 0.0
    for group in groups:
        ticks.append((y + (len(group.models) - 1) / 2, group.label))
        for one in group.models:
            speed = _latency(one) if not others else _speed(one, group.pairs.get(one.name))
            _bar(axes, y, one, speed, colours[one.name], labels[one.name])
            y += 1
        y += _GAP
    axes.set_ylim(y - _GAP - 0.35, -0.65)
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    head(figure, title)
    if not others:
        axes.set_xlabel("milliseconds a call: shorter is faster. Whiskers: quartiles")
        return
    said = f"times as fast as {labels[first]}: longer is faster"
    axes.set_xlabel(f"{said}. Whiskers: {CONFIDENCE:.0%} interval")
    figure.legend(
        handles=[patch(colours[name], label) for name, label in labels.items()],
        loc="outside lower center",
        ncols=_columns(labels),
    )


def _speed(one: Timed, pair: Pair | None) -> _Speed:
    """Over the first model, which has no pair with itself."""
    if pair is None:
        return _Speed(1.0, 1.0, 1.0, _text(one))
    speed = 1 / pair.ratio
    return _Speed(speed, 1 / pair.high, 1 / pair.low, f"{speed:.2f}x, {_text(one)}")


def _latency(one: Timed) -> _Speed:
    return _Speed(1e3 * one.seconds, 1e3 * one.low, 1e3 * one.high, _text(one))


def _text(one: Timed) -> str:
    return latency(one.seconds).replace(" us", " µs")


def _bar(axes: Any, y: float, one: Timed, speed: _Speed, colour: str, label: str) -> None:
    (bar,) = axes.barh(y, speed.value, height=0.82, color=colour, alpha=0.8)
    tip(bar, f"{label}: {_text(one)}, spread {one.spread:.1%}")
    if speed.low < speed.high:
        spread = [[max(0.0, speed.value - speed.low)], [max(0.0, speed.high - speed.value)]]
        axes.errorbar(speed.value, y, xerr=spread, color=INK, capsize=3, linewidth=1)
    end = (max(speed.high, speed.value), y)
    axes.annotate(speed.text, end, (6, 0), textcoords="offset points", va="center")
