"""What all plots share: colours for light and dark pages, and the same bytes from the same data."""

from __future__ import annotations

import contextlib
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Theme(Enum):
    """The page on which an SVG stands: a light one, a dark one, or whichever its reader prefers."""

    LIGHT = "light"
    DARK = "dark"
    READER = "reader"


INK, SOFT, LINE, PAPER = "#24292f", "#6e7781", "#d0d7de", "#ffffff"
OURS, OTHER = "#4051b5", "#c2410c"
GOOD, WARN = "#16703f", "#8a5200"
SERIES = (OURS, OTHER, "#0f766e", "#a21caf", "#a16207", "#0369a1")
"""Colours of models beside each other; with more of them they come again."""

NARROW = 6.0
"""Inches up to which a plot is for a phone."""

_DARK = {
    INK: "#e6edf3",
    SOFT: "#9198a1",
    LINE: "#3d444d",
    PAPER: "#191f27",
    OURS: "#9fa8ff",
    OTHER: "#fb923c",
    GOOD: "#74d49b",
    WARN: "#f0bd6a",
    SERIES[2]: "#5eead4",
    SERIES[3]: "#f0abfc",
    SERIES[4]: "#facc15",
    SERIES[5]: "#7dd3fc",
}
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a "$" in a layer's name is one
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "font.size": 10,
}
_TIP = "tip:"


# docs/notes/reports.md: "Plots have one style and two themes"
@dataclass(frozen=True)
class Plot:
    """A picture that `paint` draws into an empty figure of `width` by `height` inches.

    `title` says it to those who cannot see it. Colours are those of this module; others stay as
    they are on a dark page.
    """

    title: str
    width: float
    height: float
    paint: Callable[[Figure], None]

    def png(self) -> bytes:
        """Return a PNG for light pages: 144 dots an inch, on white."""
        with _drawn(self) as figure:
            out = io.BytesIO()
            figure.savefig(out, format="png", dpi=144, metadata={"Software": None})
        return out.getvalue()

    def svg(self, theme: Theme = Theme.READER) -> str:
        """Return the plot as an SVG document; for LIGHT and DARK without a background.

        For READER the document is light, and dark where browsers say that the reader prefers that;
        other programs show it light.
        """
        with _drawn(self) as figure:
            out = io.StringIO()
            clear = theme is not Theme.READER
            figure.savefig(out, format="svg", transparent=clear, metadata={"Date": None})
        lines = (line.rstrip() for line in out.getvalue().splitlines())
        text = _with_title("\n".join(lines) + "\n", self.title)
        if theme is Theme.DARK:
            return darkened(text)
        return (
            text if clear else text.replace("<title>", f"<style>{DARK_RULES}</style>\n <title>", 1)
        )

    def element(self, kind: str) -> str:
        """Return the SVG as an element of an HTML page whose style has `DARK_RULES`.

        `kind` is a further CSS class. The element names nothing outside of the page.
        """
        _, _, rest = self.svg(Theme.LIGHT).partition("<svg ")
        body = f"<svg {rest}".replace('class="plot"', f'class="plot {kind}"', 1)
        for left_out in (
            r" <metadata>.*?</metadata>\n",
            r' xmlns(:xlink)?="[^"]*"',
            r" <defs>\n  <clipPath.*?</defs>\n",  # nothing is drawn outside of the axes
            r' clip-path="[^"]*"',
        ):
            body = re.sub(left_out, "", body, flags=re.DOTALL)
        return body


def darkened(svg: str) -> str:
    """Turn the SVG of a light page into the colours of a dark one."""
    return re.sub("|".join(_DARK), lambda match: _DARK[match[0]], svg)


def tip(artist: Any, text: str) -> None:
    """Show `text` where a mouse rests on `artist`."""
    artist.set_gid(_TIP + text)


def head(figure: Figure, title: str, more: str = "") -> None:
    """Write the title over the figure's whole width and the sentence `more` below, both wrapped."""
    wide = round(12 * figure.get_figwidth())
    lines = [line for part in (title, more) if part for line in textwrap.wrap(part, wide)]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=12 if not more else 11)


def decades(low: float, high: float, most: int = 8) -> tuple[list[float], list[str]]:
    """Powers of ten between two, at most so many: places and texts of a logarithmic axis' ticks."""
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    few = powers[:: max(1, -(-len(powers) // most))]
    return [10.0**n for n in few], [f"{10.0**n:g}" for n in few]


def patch(colour: str, label: str) -> Any:
    """Make an entry of a legend: a patch of `colour` named `label`."""
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label, alpha=0.8)


@contextlib.contextmanager
def _drawn(plot: Plot) -> Iterator[Figure]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that Matplotlib's font has not
        matplotlib.rcdefaults()  # a reader's own settings would change it
        matplotlib.rcParams.update(_SETTINGS)
        # Names of clips and markers: the same in each run, others in each plot of a page.
        matplotlib.rcParams["svg.hashsalt"] = f"{plot.title} {plot.width:g}"
        figure = Figure(figsize=(plot.width, plot.height), layout="constrained", facecolor=PAPER)
        plot.paint(figure)
        yield figure


def _with_title(svg: str, title: str) -> str:
    """Names and tips in place of Matplotlib's numbers, which two plots of a page would share."""
    svg = re.sub(r' id="[\w.]+_\d+"', "", svg)
    svg = re.sub(f'<g id="{_TIP}([^"]*)">', r"<g><title>\1</title>", svg)
    said = html.escape(title)
    head = f'<svg class="plot" role="img" aria-label="{said}" '
    svg = svg.replace("<svg ", head, 1)
    start = svg.index(">", svg.index("<svg ")) + 1
    return f"{svg[:start]}\n <title>{said}</title>{svg[start:]}"


def _rules() -> Iterator[str]:
    """Yield the CSS rules that give each colour its dark one.

    They are for any element: markers stand in trees of their own, outside of the drawing.
    """
    for light, dark in _DARK.items():
        for what in ("fill", "stroke"):
            yield f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'


DARK_RULES = f"@media(prefers-color-scheme:dark){{{''.join(_rules())}}}"
"""CSS that gives plots the colours of a dark page where readers prefer one."""
