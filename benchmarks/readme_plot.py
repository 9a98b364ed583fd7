"""Speed against error as an SVG, by Matplotlib: the same bytes from the same points."""

from __future__ import annotations

import io
from dataclasses import dataclass

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


def draw(points: list[Point], theme: str) -> str:
    """An SVG in the colours of `theme`, light or dark, on no background. Text stays text."""
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
        axes = figure.add_subplot()
        for point in points:
            colour = colours["ours" if point.ours else "other"]
            axes.plot(
                point.speed, point.error, "o" if point.ours else "s", color=colour, markersize=9
            )
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
        axes.axvline(1, color=colours["soft"], linestyle="--")
        axes.annotate("float", (1, 0.01), (6, 0), textcoords="offset points", color=colours["soft"])
        axes.set(xlim=(0.8, 4.1), ylim=(0.15, 0.0003), yscale="log")
        axes.set_xlabel("speed, float = 1: further right is faster")
        axes.set_ylabel("error: higher up is better")
        axes.set_yticks([0.1, 0.01, 0.001], ["0.1", "0.01", "0.001"])
        axes.minorticks_off()
        axes.grid(color=colours["line"], linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
