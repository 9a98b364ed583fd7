"""Compares a model with what it was converted to: both are quantized, over the same integers."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from octavo.errors import ModelError, VerificationError, brief
from octavo.onnx.check.distance import Distance, Run
from octavo.onnx.check.findings import Findings
from octavo.onnx.check.model_pair import ModelPair
from octavo.onnx.check.outputs import OutputComparison
from octavo.onnx.check.runs import NOT_MADE_UP, NOTHING_ELSE, Runs
from octavo.onnx.custom_ops import session_options
from octavo.onnx.inputs import Feed, describe, shapes_of
from octavo.onnx.read.load import load
from octavo.onnx.session import session
from octavo.results.report import Verification

MAX_ERROR = 0.1
"""What recipe int8 allows a model to be away from the float one; the two are both that close."""
SIZES = 2
"""How many made-up inputs are compared."""

ADVICE = (
    "Quantize the float model again for that target, or write the file unchecked (verify=False, "
    "--no-verify)"
)


def check_conversion(source: Path, converted: Path, feeds: list[Feed] | None) -> Verification:
    """Compare the outputs of two files.

    Raises VerificationError if the outputs are too far apart, or one file does not run. Without
    `feeds` inputs are made up, within a budget of memory and time; where the source rejects them
    all, nothing is compared and the status is "unchecked".
    """
    kind = "made up" if feeds is None else "given"
    theirs, ours = open_checked(source, "source"), open_checked(converted, "converted model")
    read = load(source)
    runs = Runs(theirs, ours, read)
    try:
        ran = _made_up(runs) if feeds is None else runs.given(feeds)
    except VerificationError as error:
        raise VerificationError(
            f"the converted model fails on inputs that the source accepts: "
            f"{brief(error.__cause__ or error)}; give inputs (check_inputs, --inputs) on which "
            "both run"
        ) from error
    if not ran:
        detail = f"{NOT_MADE_UP} ({runs.refused or NOTHING_ELSE})"
        return Verification("unchecked", kind, detail=detail)
    pair = ModelPair(read, converted, None)
    found = OutputComparison(runs.names, pair, runs.again).compare(ran, MAX_ERROR)
    _refuse(found, kind)
    used = [run.feed for run in ran]
    described = describe(used, runs.model) if feeds is None else shapes_of(used)
    left_out = sum(run.padding.rows for run in ran)
    return found.verification(kind, len(ran), MAX_ERROR, described, padding=left_out)


def _made_up(runs: Runs) -> list[Run]:
    done: list[Run] = []
    with suppress(TimeoutError):
        for taken in islice(runs.accepted(), SIZES):
            done.append(runs.both(taken))
    return done


def _refuse(found: Findings, kind: str) -> None:
    for other in found.mismatches:
        raise VerificationError(
            f"output {other.output!r} of the converted model has the shape {list(other.got)}, "
            f"the source's has {list(other.expected)}. {ADVICE}"
        )
    worst = found.worst
    if worst is None:
        return
    if worst.non_finite:
        raise VerificationError(
            f"output {worst.output!r} of the converted model holds {worst.non_finite} non-finite "
            f"numbers where the source's are finite. {ADVICE}"
        )
    if worst.error > MAX_ERROR:
        raise _too_far(worst, kind)


def _too_far(worst: Distance, kind: str) -> VerificationError:
    what = f"output {worst.output!r}" + (f", {worst.where}" if worst.where else "")
    first = "Pass inputs of use (check_inputs, --inputs data.npz) first. "
    return VerificationError(
        f"the converted model is too far from the source: error {worst.error:.4g} at {what}, on "
        f"inputs that were {kind}, above {MAX_ERROR:g}. {first if kind == 'made up' else ''}"
        f"{ADVICE}"
    )


def open_checked(path: Path, what: str) -> Any:
    """Open a session. Raises ModelError for a "source", VerificationError for another."""
    try:
        with session_options() as options:
            return session(path, sess_options=options)
    except ModelError as error:
        if what == "source":  # nobody's fault but the file's
            raise
        raise VerificationError(f"the {what} does not load: {brief(error)}. {ADVICE}") from error
