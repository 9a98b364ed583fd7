"""How far numbers of two models are apart, in words; the text and the HTML pages share them."""

from __future__ import annotations

import math
from statistics import median

from octavo.recipe.comparison import Comparison, Difference, LayerDifference
from octavo.report import text as words
from octavo.report.text import count

STANDS_OUT_DB = 10.0
"""By which a layer is worse than the median of all: ten times the noise."""


def decibels(d: Difference | None) -> str:
    """`41.2 dB`, `exact`, `no signal`, `not finite`; `-` where nothing could be compared."""
    if d is None:
        return "-"
    if d.non_finite or not d.values:
        return "not finite"
    return "no signal" if d.sqnr_db == -math.inf else words.decibels(d.sqnr_db)


def not_finite(d: Difference | None) -> str:
    """What numbers are not finite, in words."""
    said = []
    if d is not None and d.non_finite:
        of = count(d.values, "number")
        said.append(f"{d.non_finite:,} of {of} are not finite, which the float model's are")
    if d is not None and d.float_non_finite:
        said.append(
            f"{count(d.float_non_finite, 'number')} not finite in the float model, left out"
        )
    return "; ".join(said)


def typical(found: Comparison) -> float | None:
    """The median SQNR of layers alone, in dB; None where none could be measured."""
    rated = [layer.alone.sqnr_db for layer in found.layers if layer.alone is not None]
    return median(rated) if rated else None


def to_blame(found: Comparison) -> LayerDifference | None:
    """The layer to look at first; None where none stands out."""
    worst, rated = found.layers[0] if found.layers else None, typical(found)
    if worst is None or worst.alone is None or rated is None:
        return None
    if worst.alone.non_finite:
        return worst
    several = sum(layer.alone is not None for layer in found.layers) > 1
    return worst if several and worst.alone.sqnr_db < rated - STANDS_OUT_DB else None
