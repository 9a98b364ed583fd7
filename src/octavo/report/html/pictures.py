"""Sections with a plot, for wide and for narrow screens; without Matplotlib they say what to do."""

from __future__ import annotations

from collections.abc import Callable

from octavo.core.packages import what_is_wrong
from octavo.report.html.parts import Picture
from octavo.report.plots.errors import errors_plot
from octavo.report.plots.style import Plot
from octavo.report.plots.trials import trials_plot
from octavo.results.comparison import Comparison
from octavo.results.tuning import TuneResult

_WIDE, _NARROW = 9.0, 3.8  # inches


def trials_picture(result: TuneResult) -> Picture | None:
    """Accuracy of each trial against its time or size; None where none has both."""
    intro = "Up and to the left is better. A mouse over a mark shows its recipe."
    return _picture("picture", "Accuracy of the trials", intro, lambda w: trials_plot(result, w))


def errors_picture(found: Comparison) -> Picture | None:
    """Draw the error of outputs and layers; None with fewer than two layers: figures say it."""
    if len(found.layers) < 2:
        return None
    intro = "Each layer alone, and with the error of what comes before it. The worst are on top."
    return _picture("errors", "Error by layer", intro, lambda w: errors_plot(found, w))


def _picture(
    anchor: str, title: str, intro: str, draw: Callable[[float], Plot | None]
) -> Picture | None:
    wide, narrow = draw(_WIDE), draw(_NARROW)
    if wide is None or narrow is None:
        return None
    if why := what_is_wrong("matplotlib"):
        return Picture(anchor, title, missing=why)
    return Picture(anchor, title, wide.element("wide"), narrow.element("narrow"), intro=intro)
