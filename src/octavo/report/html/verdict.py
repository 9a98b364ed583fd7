"""A quantized model beside the float one and ONNX Runtime's own int8, in sentences and tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator

from octavo.report.html.parts import Tile, latency, share
from octavo.results import words
from octavo.results.benchmark import CONFIDENCE, Pair, Verdict, times
from octavo.results.comparison import Comparison
from octavo.results.evidence import FLOAT, ORT, QUANTIZED, Evidence
from octavo.results.judgement import speedup, worst_error, worst_output
from octavo.results.words import number, size

ORT_NAME = "ONNX Runtime's own int8"
"""What `onnxruntime.quantization.quantize_dynamic` makes, with its default options."""

_THAT = "that"
_DEFAULT = "at its default of one scale a tensor"
_ALIKE = 1.05  # errors that differ by less are called the same
_NOISY = "noisy: octavo report --seconds 30 tells more"


def least_agreement(found: Comparison | None) -> float | None:
    """Return the least share, among outputs, of rows whose largest number is at the same place."""
    return (
        min((o.agreement for o in found.outputs if o.agreement is not None), default=None)
        if found
        else None
    )


def interval(pair: Pair) -> str:
    """Format the bounds of `speedup`, such as `1.88x to 1.96x`."""
    return f"{1 / pair.high:.2f}x to {1 / pair.low:.2f}x"


def model_sizes(evidence: Evidence | None) -> tuple[int | None, int | None]:
    """Return the bytes of the float and of the quantized model, as far as they are known."""
    both = [None if evidence is None else evidence.timed(name) for name in (FLOAT, QUANTIZED)]
    before, after = (None if one is None else one.bytes for one in both)
    return before, after


def measured_verdict(
    evidence: Evidence, before: int | None = None, after: int | None = None
) -> str:
    """Speed, size and error in a sentence, as far as they were measured; what was too noisy to tell
    in another; may be empty.

    `before` and `after` are the models' bytes; those of the benchmark where they are None.
    """
    if before is None or after is None:
        before, after = model_sizes(evidence)
    said = list(_clauses(evidence, before, after))
    sentences = [_sentence(said)] if said else []
    pairs = ((evidence.pair(FLOAT, QUANTIZED), "float"), (_beside_ort(evidence), ORT_NAME))
    for pair, other in pairs:
        if pair is not None and pair.verdict is Verdict.NOISY:
            bounds = f"{times(pair.low)} to {times(pair.high)}"
            sentences.append(
                f"Whether it is faster than {other} cannot be told, too noisy: it takes "
                f"{bounds} of the time."
            )
    return " ".join(sentences)


def _sentence(said: list[str]) -> str:
    text = ", ".join(said[:-1]) + (" and " if len(said) > 1 else "") + said[-1]
    return f"{text[:1].upper()}{text[1:]}."


def _beside_ort(evidence: Evidence) -> Pair | None:
    """Return the quantized model's time over ONNX Runtime's, in whichever order both were timed."""
    pair = evidence.pair(ORT, QUANTIZED)
    return _turned(evidence.pair(QUANTIZED, ORT)) if pair is None else pair


def _clauses(evidence: Evidence, before: int | None, after: int | None) -> Iterator[str]:
    pair = evidence.pair(FLOAT, QUANTIZED)
    if pair is not None and pair.verdict is not Verdict.NOISY:
        yield _speed(pair, "float")
    if before and after:
        yield f"{words.ratio(before, after)} ({size(before)} to {size(after)})"
    error, theirs = worst_error(evidence.comparison), worst_error(evidence.ort)
    if error is not None:
        yield _error(error) if theirs is None else _beside(error, theirs)
    against = _beside_ort(evidence)
    if against is not None and against.verdict is not Verdict.NOISY:
        yield _speed(against, _THAT if theirs is not None and error is not None else ORT_NAME)


def _speed(pair: Pair, other: str) -> str:
    sure = "" if other == _THAT else f"{CONFIDENCE:.0%} interval "  # said once
    bounds = f"{sure}{interval(pair)}"
    return {
        Verdict.FASTER: f"{speedup(pair)} as fast as {other} ({'noisy' if pair.wide else bounds})",
        Verdict.SLOWER: f"slower than {other}: it takes {times(pair.ratio)} times as long "
        f"({sure}{times(pair.low)} to {times(pair.high)})",
        Verdict.SAME: f"as fast as {other} (no difference seen, within {pair.within:.1%})",
    }[pair.verdict]


def _beside(ours: float, theirs: float) -> str:
    """Compare the errors of two models in words, as a ratio where there is one."""
    if not math.isfinite(ours):
        return _error(ours)
    if not math.isfinite(theirs):
        return f"{_error(ours)}, where {ORT_NAME} gives numbers that are not finite"
    both = f"{number(ours)} against {number(theirs)}"
    if ours == theirs or (ours > 0 and 1 / _ALIKE < theirs / ours < _ALIKE):
        return f"the same error as {ORT_NAME} ({both})"
    if not theirs:  # it quantized nothing, or nothing that counts
        return f"{_error(ours)}; {ORT_NAME} leaves the outputs as they are"
    if not ours:
        return f"less error than {ORT_NAME} ({both})"
    factor = max(ours, theirs) / min(ours, theirs)
    if ours < theirs:
        return f"{factor:.1f} times less error than {ORT_NAME} {_DEFAULT} ({both})"
    return f"{factor:.1f} times the error of {ORT_NAME} {_DEFAULT} ({both})"


def _turned(pair: Pair | None) -> Pair | None:
    """Swap the two models of the pair: its ratio and interval become their reciprocals."""
    if pair is None:
        return None
    bounds = (1 / pair.ratio, 1 / pair.high, 1 / pair.low)
    return Pair(pair.b, pair.a, pair.shape, pair.threads, *bounds, pair.openings)


def _error(error: float) -> str:
    if not math.isfinite(error):
        return "numbers that are not finite, where the float model's are"
    return f"an error of {number(error)} against float"


def size_tile(before: int, after: int) -> Tile:
    """Build the tile of the quantized model's size beside the float one's."""
    detail = f"{words.ratio(before, after)}, float {size(before)}"
    return Tile("Size", size(after), detail, share(after / before) if before else None)


def speed_tile(evidence: Evidence) -> Tile | None:
    """Build the tile of how many times as fast as the float model the quantized one is.

    Return None where the quantized model was not timed.
    """
    pair, base = evidence.pair(FLOAT, QUANTIZED), evidence.timed(FLOAT)
    ours = evidence.timed(QUANTIZED)
    if pair is None:
        return None
    both = f"{latency(base.seconds)} to {latency(ours.seconds)}, " if base and ours else ""
    if pair.verdict is Verdict.NOISY:
        return Tile("Speed", "unclear", f"{both}too noisy to tell: {interval(pair)} of float's")
    value = "as float" if pair.verdict is Verdict.SAME else speedup(pair)
    sure = f"{CONFIDENCE:.0%} interval {interval(pair)}"
    detail = f"{both}{_NOISY if pair.wide else sure}"
    return Tile("Speed", value, detail, share(pair.ratio))


def error_tiles(evidence: Evidence) -> Iterator[Tile]:
    """Yield the tiles of the worst output's error and of the least top-1 agreement."""
    worst, error = worst_output(evidence.comparison), worst_error(evidence.comparison)
    if worst is not None and worst.difference is not None and error is not None:
        theirs = worst_error(evidence.ort)
        against = "" if theirs is None else f"{ORT_NAME} of its defaults: {_error_text(theirs)}"
        sqnr = f"SQNR {words.decibels(worst.difference.sqnr_db)}"
        detail = "; ".join(filter(None, (against, sqnr if math.isfinite(error) else "")))
        yield Tile("Error", _error_text(error), detail)
    least = least_agreement(evidence.comparison)
    if least is not None:
        theirs = least_agreement(evidence.ort)
        detail = "same largest number as float" + (
            "" if theirs is None else f"; {ORT_NAME}: {words.share(theirs)}"
        )
        yield Tile("Top-1 agreement", words.share(least), detail, least)


def _error_text(error: float) -> str:
    return number(error) if math.isfinite(error) else "not finite"
