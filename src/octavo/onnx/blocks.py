"""Schemes of weights in blocks: the kernels' format for one, and the nearest without blocks."""

from __future__ import annotations

from dataclasses import replace

from octavo.core.kernels import WeightFormat
from octavo.core.qparams import QType
from octavo.recipe import Granularity, WeightScheme
from octavo.recipe.scheme import GROUPS


def is_in_blocks(w: WeightScheme | None) -> bool:
    """Tell whether consecutive inputs share a scale."""
    return w is not None and w.granularity is Granularity.BLOCK


def format_of(w: WeightScheme) -> WeightFormat | None:
    """Return the kernels' format for a scheme in blocks; None where none has their length."""
    if w.granularity is not Granularity.BLOCK or w.block not in GROUPS:
        return None
    return WeightFormat.grouped(4 if w.qtype is QType.INT4 else 8, w.block, not w.symmetric)


def is_plain(w: WeightScheme) -> bool:
    """Tell whether a block's scale and zero point are those of its range: 8 bits, of any length."""
    return w.qtype is not QType.INT4 and w.observer != "search"


def without_blocks(w: WeightScheme) -> WeightScheme:
    """Replace blocks by a scale for each channel, and 4 bits, which are too few there, by 8."""
    if not is_in_blocks(w):
        return w
    qtype = QType.INT8 if w.qtype is QType.INT4 else w.qtype
    observer = "minmax" if w.observer == "search" else w.observer
    return replace(w, qtype=qtype, granularity=Granularity.CHANNEL, block=None, observer=observer)
