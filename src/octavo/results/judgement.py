"""Whether a quantized model can be shipped, in a sentence, from what became of it and was measured.

It is 3.9x smaller (90.4 MB to 23.0 MB), 3.05x as fast as the float model, and its outputs are
99.6% like that model's: check it before you ship it, because it was compared on made-up inputs
alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from octavo.results import words
from octavo.results.benchmark import Pair, Verdict
from octavo.results.comparison import Comparison, OutputDifference
from octavo.results.evidence import FLOAT, QUANTIZED, Evidence
from octavo.results.words import count, number, size

if TYPE_CHECKING:
    from octavo.results.report import Report

CLOSE = 0.01
"""An error up to which outputs are called close: from a few hundredths on, labelled scores of
all-MiniLM-L6 change by points (`benchmarks/results/models_vnni.json`)."""
BOUND = 0.1
"""The largest error allowed where nobody says another: that of recipe int8."""


class Ship(Enum):
    """What to do with the model; the value is the heading."""

    READY = "Ready to ship"
    CHECK = "Check before you ship"
    NOT = "Not ready to ship"


class Finding(Enum):
    """What speaks against shipping; those that forbid it come first."""

    NOTHING_QUANTIZED = "nothing quantized"
    NOT_FINITE = "not finite"
    ABOVE_BOUND = "above the bound"
    NOT_COMPARED = "not compared"
    MADE_UP = "made-up inputs"
    IN_PART = "compared in part"
    FLOAT_NOT_FINITE = "float model not finite"
    UNREACHED = "layers unreached"
    NOT_CLOSE = "not close"
    SUSPECT = "a layer stands out"
    SLOWER = "slower"
    NOT_SMALLER = "hardly smaller"


_FORBIDS = frozenset({Finding.NOTHING_QUANTIZED, Finding.NOT_FINITE, Finding.ABOVE_BOUND})


@dataclass(frozen=True)
class Judgement:
    """The verdict: `findings` with their words, the worst first; `why` says the first two, and the
    sentence what the model is, too.

    `error` is that of the worst output, from the comparison or else the check; None without one.
    """

    ship: Ship
    why: str
    sentence: str
    findings: tuple[tuple[Finding, str], ...]
    error: float | None
    timed: bool = True

    @property
    def heading(self) -> str:
        """Return what to do with the model: `Ready to ship, if it is fast enough`."""
        if_fast = self.ship is Ship.READY and not self.timed
        return f"{self.ship.value}{_IF_FAST if if_fast else ''}"

    @property
    def in_short(self) -> str:
        """Return what to do with the model, and why.

        For example `Check before you ship: it was compared on made-up inputs alone`.
        """
        return f"{self.heading}: {self.why}"

    def found(self, *which: Finding) -> bool:
        """Tell whether one of them was found."""
        return any(finding in which for finding, _ in self.findings)


def judge(
    report: Report | None,
    evidence: Evidence,
    sizes: tuple[int | None, int | None],
) -> Judgement:
    """Judge a model from a report, measurements or both.

    `sizes` are the models' bytes, as far as they are known.

    A model is ready where all outputs were compared on inputs that a user gave, and are close; if
    it is fast enough, where nothing tells.
    """
    error = _error(report, evidence)
    findings = tuple(_findings(report, evidence, error, bound_of(report)))
    forbidden = any(finding in _FORBIDS for finding, _ in findings)
    ship = Ship.NOT if forbidden else Ship.CHECK if findings else Ship.READY
    facts = list(_facts(report, evidence, sizes))
    what = f"It is {_listed(facts)}" if facts else "Nothing of it was measured"
    why = " and ".join(said for _, said in findings[:2]) if findings else _CLOSE_ENOUGH
    pair = evidence.pair(FLOAT, QUANTIZED)
    timed = pair is not None and pair.verdict is not Verdict.NOISY
    to_do = _TO_DO[ship].format("" if timed else _IF_FAST)
    return Judgement(ship, why, f"{what}: {to_do}{why}.", findings, error, timed)


def bound_of(report: Report | None) -> float:
    """Return the largest error that the report's recipe allows, `BOUND` where none is known."""
    return float(({} if report is None else report.recipe).get("max_error", BOUND))


_CLOSE_ENOUGH = "its outputs are close to the float model's on the inputs given"
_IF_FAST = ", if it is fast enough"
"""Of a model that nobody timed, or whose times were too noisy."""
_TO_DO = {
    Ship.READY: "ready to ship{}, as ",
    Ship.CHECK: "check it before you ship it, because ",
    Ship.NOT: "do not ship it, because ",
}


def worst_output(found: Comparison | None) -> OutputDifference | None:
    """Return the output with the largest error; None where no output could be compared."""
    outputs = () if found is None else found.outputs
    rated = [o for o in outputs if o.difference is not None and o.difference.values]
    return max(rated, key=_error_of, default=None)


def worst_error(found: Comparison | None) -> float | None:
    """Return the largest error of an output; infinite where its numbers alone are not finite."""
    worst = worst_output(found)
    return None if worst is None else _error_of(worst)


def speedup(pair: Pair) -> str:
    """Say how many times as fast the second model is.

    The text is `1.92x`, or a range such as `1.7x to 6.6x` where nobody knows.
    """
    if pair.wide:
        return f"{1 / pair.high:.1f}x to {1 / pair.low:.1f}x"
    return f"{1 / pair.ratio:.2f}x"


def _error_of(output: OutputDifference) -> float:
    d = output.difference
    if d is None:
        return -1.0
    return math.inf if d.non_finite or math.isnan(d.error) else d.error


def _error(report: Report | None, evidence: Evidence) -> float | None:
    error = worst_error(evidence.comparison)
    return error if error is not None or report is None else report.verification.error


def _findings(
    report: Report | None, evidence: Evidence, error: float | None, bound: float
) -> Iterator[tuple[Finding, str]]:
    """Yield only the findings that are there, in the order of `Finding`."""
    found = evidence.comparison
    if report is not None and not report.quantized:
        yield Finding.NOTHING_QUANTIZED, "no layer of it is quantized"
        return
    if error is not None and math.isinf(error) and not _not_finite(found):
        yield Finding.ABOVE_BOUND, "its error is too large to be given"
    elif error is not None and not math.isfinite(error):
        yield Finding.NOT_FINITE, "it gives numbers that are not finite"
    elif error is not None and error > bound:
        said = f"its error of {number(error)} is more than the {number(bound)} allowed"
        yield Finding.ABOVE_BOUND, said
    yield from _unsure(report, found, error)
    if error is not None and CLOSE < error <= bound:
        said = f"its error of {number(error)} may cost accuracy, which was not measured"
        yield Finding.NOT_CLOSE, said
    if found is not None and found.suspect is not None:
        yield Finding.SUSPECT, f"most of the error comes from one layer, {_name(found)}"
    pair = evidence.pair(FLOAT, QUANTIZED)
    if pair is not None and pair.verdict is Verdict.SLOWER:
        yield Finding.SLOWER, "it is slower than the float model"
    if report is not None and report.gains_nothing:
        yield Finding.NOT_SMALLER, "it is hardly smaller than the float model"


def _not_finite(found: Comparison | None) -> bool:
    """Tell whether an infinite error is one of numbers that are not finite: without signal (float's
    outputs are 0) it is infinite, too."""
    outputs = () if found is None else found.outputs
    differences = [o.difference for o in outputs if o.difference]
    return found is None or any(d.non_finite or math.isnan(d.error) for d in differences)


def _name(found: Comparison) -> str:
    assert found.suspect is not None
    return words.name(found.suspect.name)


def _unsure(
    report: Report | None, found: Comparison | None, error: float | None
) -> Iterator[tuple[Finding, str]]:
    """Yield findings of why the error may not be that of real inputs."""
    lost = sum(
        o.difference.float_non_finite for o in (found.outputs if found else ()) if o.difference
    )
    if lost and worst_output(found) is None:
        said = "no number of the float model's outputs is finite, so that none could be compared"
        yield Finding.FLOAT_NOT_FINITE, said
        return
    if error is None:
        yield Finding.NOT_COMPARED, "it was not compared with the float model"
        return
    check = None if report is None else report.verification
    inputs = found.inputs if found is not None else "" if check is None else check.inputs
    if inputs != "given":
        yield Finding.MADE_UP, "it was compared on made-up inputs alone"
    outputs = () if found is None else found.outputs
    left = [o for o in outputs if o.difference is None]
    if left:
        named = words.names([output.name for output in left])
        yield Finding.IN_PART, f"{count(len(left), 'output')} could not be compared: {named}"
    elif check is not None and check.status == "compared":
        yield Finding.IN_PART, "only a part of its outputs could be compared"
    if lost:
        numbers = count(lost, "number")
        yield Finding.FLOAT_NOT_FINITE, f"{numbers} of the float model's outputs are not finite"
    missed = len(check.unreached) if check is not None and check.unreached else _missed(found)
    if missed:
        layers = count(missed, "quantized layer")
        yield Finding.UNREACHED, f"the inputs did not come to {layers}"


def _missed(found: Comparison | None) -> int:
    """Count the layers that no input came to."""
    layers = () if found is None else found.layers
    return sum(layer.alone is None and layer.accumulated is None for layer in layers)


def _facts(
    report: Report | None, evidence: Evidence, sizes: tuple[int | None, int | None]
) -> Iterator[str]:
    """Yield the quantized model's size, speed and likeness to the float one, a few words each."""
    before, after = sizes
    if before and after:
        same = before == after
        yield words.ratio(before, after) + (
            f" as the float model ({size(after)})"
            if same
            else f" ({size(before)} to {size(after)})"
        )
    pair = evidence.pair(FLOAT, QUANTIZED)
    if pair is None:
        yield "not timed"
    elif pair.verdict is Verdict.NOISY:
        yield "of a speed that was too noisy to tell"
    elif pair.verdict is Verdict.SAME:
        yield "as fast as the float model"
    else:
        noisy = " (noisy)" if pair.wide else ""
        yield f"{speedup(pair)} as fast as the float model{noisy}"
    alike = _alike(report, evidence)
    if alike is not None:
        yield f"{alike} like it in its {_compared_outputs(evidence.comparison)}"


def _compared_outputs(found: Comparison | None) -> str:
    """Name the outputs that `_alike` speaks of, such as `output last_hidden_state`."""
    worst = worst_output(found)
    if found is None or worst is None:
        return "outputs"
    return f"{'worst ' if len(found.outputs) > 1 else ''}output {words.name(worst.name)}"


def _alike(report: Report | None, evidence: Evidence) -> str | None:
    """Format the worst output's cosine with the float model's, such as `99.6%`.

    Return None where that output has none.
    """
    worst = worst_output(evidence.comparison)
    if worst is not None and worst.difference is not None:
        d = worst.difference
        return None if d.cosine is None or d.non_finite else _share(d.cosine, d.error)
    v = None if report is None else report.verification
    if v is None or v.error is None or v.cosine_error is None or not math.isfinite(v.error):
        return None
    return _share(1 - v.cosine_error, v.error)


def _share(cosine: float, error: float) -> str:
    """Format a cosine as `99.6%` or `99.98%`: never 100% of what is not the same."""
    if error == 0:
        return "100%"
    digits = 1 if cosine < 0.999 else 2 if cosine < 0.9999 else 3
    return f"{min(cosine, 0.99999):.{digits}%}"


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
