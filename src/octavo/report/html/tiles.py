"""Tiles of what was measured of a quantized model."""

from __future__ import annotations

import math
from collections.abc import Iterator

from octavo.report.evidence_words import (
    ORT_NAME,
    interval,
    least_agreement,
    speedup,
    worst_error,
    worst_output,
)
from octavo.report.html.figures import latency, share
from octavo.report.html.parts import Tile
from octavo.results import words
from octavo.results.benchmark import CONFIDENCE, Verdict
from octavo.results.evidence import FLOAT, QUANTIZED, Evidence
from octavo.results.words import number, size


def size_tile(before: int, after: int) -> Tile:
    """The quantized model's size beside the float one's."""
    detail = f"{words.ratio(before, after)}, float {size(before)}"
    return Tile("Size", size(after), detail, share(after / before) if before else None)


def speed_tile(evidence: Evidence) -> Tile | None:
    """How many times as fast as the float model; None where it was not timed."""
    pair, base = evidence.pair(FLOAT, QUANTIZED), evidence.timed(FLOAT)
    ours = evidence.timed(QUANTIZED)
    if pair is None:
        return None
    both = f"{latency(base.seconds)} to {latency(ours.seconds)}, " if base and ours else ""
    if pair.verdict is Verdict.NOISY:
        return Tile("Speed", "unclear", f"{both}too noisy to tell: {interval(pair)} of float's")
    value = "as float" if pair.verdict is Verdict.SAME else speedup(pair)
    detail = f"{both}{CONFIDENCE:.0%} interval {interval(pair)}"
    return Tile("Speed", value, detail, share(pair.ratio))


def error_tiles(evidence: Evidence) -> Iterator[Tile]:
    """The worst output's error, and how often the largest number is at the same place."""
    worst, error = worst_output(evidence.comparison), worst_error(evidence.comparison)
    if worst is not None and worst.difference is not None and error is not None:
        theirs = worst_error(evidence.ort)
        against = "" if theirs is None else f"{ORT_NAME}: {_error(theirs)}"
        sqnr = f"SQNR {words.decibels(worst.difference.sqnr_db)}"
        detail = "; ".join(filter(None, (against, sqnr if math.isfinite(error) else "")))
        yield Tile("Error", _error(error), detail)
    least = least_agreement(evidence.comparison)
    if least is not None:
        theirs = least_agreement(evidence.ort)
        detail = "same largest number as float" + (
            "" if theirs is None else f"; {ORT_NAME}: {theirs:.1%}"
        )
        yield Tile("Top-1 agreement", f"{least:.1%}", detail, least)


def _error(error: float) -> str:
    return number(error) if math.isfinite(error) else "not finite"
