"""Compares a model with what it was converted to: both are quantized, over the same integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from octavo.core.metrics import cosine_error, relative_error
from octavo.errors import ModelError, VerificationError, brief
from octavo.graph.walk import opset_of
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import session_options
from octavo.onnx.inputs import Feed, made_up
from octavo.onnx.load import load
from octavo.onnx.session import session
from octavo.recipe import Verification

MAX_ERROR = 0.1
"""What recipe int8 allows a model to be away from the float one; the two are both that close."""

_ADVICE = (
    "Quantize the float model again for that target, or write the file unchecked (verify=False, "
    "--no-verify)"
)


def agree(source: Path, converted: Path, feeds: list[Feed] | None) -> Verification:
    """Raises VerificationError if the two files' outputs are too far apart, or one does not run.

    Without `feeds` inputs are made up; where the source rejects them all, nothing is compared.
    """
    kind = "made up" if feeds is None else "given"
    theirs, ours = _open(source, "source"), _open(converted, "converted model")
    if feeds is None:
        model = load(source).model
        guesses = made_up(model, Constants(opset_of(model)))
        feed = next((f for f in guesses if _runs(theirs, f)), None)
        if feed is None:
            detail = "no inputs could be made up that the model accepts; pass check_inputs"
            return Verification("loaded", kind, detail=detail)
        feeds = [feed]
    names = [o.name for o in theirs.get_outputs()]
    worst, cosine, compared = 0.0, 0.0, 0
    for feed in feeds:
        expected, got = _run(theirs, names, feed), _run(ours, names, feed)
        for name, a, b in zip(names, expected, got, strict=True):
            if not isinstance(a, np.ndarray) or a.dtype.kind != "f":
                continue
            error, angle = _distance(name, a, b)
            worst, cosine, compared = (
                max(worst, error),
                max(cosine, angle),
                compared + int(np.isfinite(a).sum()),
            )
            if error > MAX_ERROR:
                raise VerificationError(
                    f"the converted model is too far from the source: error {error:.4g} at output "
                    f"{name!r} on inputs that were {kind}, above {MAX_ERROR:g}. {_ADVICE}"
                )
    if not compared:
        detail = "no output holds finite floating-point numbers, so nothing could be compared"
        return Verification("loaded", kind, len(feeds), detail=detail)
    return Verification("passed", kind, len(feeds), worst, cosine, MAX_ERROR)


def _distance(name: str, a: Any, b: Any) -> tuple[float, float]:
    if a.shape != b.shape:
        raise VerificationError(
            f"output {name!r} of the converted model has the shape {list(b.shape)}, the source's "
            f"has {list(a.shape)}. {_ADVICE}"
        )
    finite = np.isfinite(a)
    bad = int((~np.isfinite(b) & finite).sum())
    if bad:
        raise VerificationError(
            f"output {name!r} of the converted model holds {bad} non-finite numbers where the "
            f"source's are finite. {_ADVICE}"
        )
    return relative_error(a[finite], b[finite]), cosine_error(a[finite], b[finite])


def _open(path: Path, what: str) -> Any:
    try:
        with session_options() as options:
            return session(path, sess_options=options)
    except ModelError as error:
        if what == "source":  # nobody's fault but the file's
            raise
        raise VerificationError(f"the {what} does not load: {brief(error)}. {_ADVICE}") from error


def _runs(model: Any, feed: Feed) -> bool:
    try:
        model.run(None, feed)
    except Exception:  # noqa: BLE001 - a wrong guess fails in many ways
        return False
    return True


def _run(model: Any, names: list[str], feed: Feed) -> list[Any]:
    try:
        return list(model.run(names, feed))
    except Exception as error:
        raise VerificationError(
            f"one of the two models fails on the inputs: {brief(error)}; give inputs "
            "(check_inputs, --inputs) on which both run"
        ) from error
