"""Compares a quantized model with the float one, as a user will run it: all optimizations on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from octavo.core.metrics import cosine_error, relative_error
from octavo.errors import InputDataError, VerificationError, brief
from octavo.graph.walk import opset_of
from octavo.onnx.blame import Blame
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import HINT, open_session, session_options
from octavo.onnx.inputs import Feed, made_up, ways
from octavo.onnx.load import Source, load
from octavo.onnx.reach import Reach
from octavo.onnx.session import session
from octavo.recipe import LayerOutcome, Verification

Outputs = list[Any]
Pair = tuple[npt.NDArray[Any], npt.NDArray[Any]]


EQUAL = (
    "the outputs are equal to the last bit: perhaps these inputs do not reach the layers that were "
    "quantized; pass check_inputs (--inputs data.npz) that do"
)

SIZES_A_WAY = 3
"""How many made-up inputs are tried for each way through a model that has branches."""
MOST_NAMED = 5  # layers in a message


@dataclass(frozen=True)
class _Run:
    """The outputs of both models on one feed."""

    feed: Feed
    expected: Outputs
    got: Outputs


@dataclass(frozen=True)
class _Worst:
    """The output with the largest error over all runs; `feed` contributes most to it."""

    error: float
    cosine: float
    output: str
    feed: Feed


def verify(
    source: Source,
    quantized: Path,
    feeds: Sequence[Feed] | None,
    max_error: float | None,
    outcomes: Sequence[LayerOutcome],
) -> Verification:
    """Raises VerificationError if the quantized model does not load or is not what was promised.

    `feeds` are the inputs that were given; None has them made up. Where the float model itself
    does not load or rejects every made-up input, or no output can be compared, the quantized model
    is only loaded, and the result says so. With `max_error=None` any finite difference passes, and
    outputs whose shapes differ are left out: for a model whose accuracy was measured.
    """
    kind = "made up" if feeds is None else "given"
    theirs = _open_float(source)
    ours = _open_quantized(quantized, theirs)
    if isinstance(theirs, str):
        detail = f"the float model does not load in ONNX Runtime: {theirs}"
        return Verification("loaded", kind, detail=detail)
    trial = _Trial(theirs, ours, kind, max_error, Blame(source, quantized, outcomes))
    reach = Reach(source, outcomes)
    if feeds is not None:
        trial.take(feeds)
        reach.ran(feeds)
    else:
        accepted = _accepted(theirs, source)
        if isinstance(accepted, str):
            return Verification("loaded", kind, detail=accepted)
        # Where nothing differs at all, the inputs did not reach what was quantized: try others.
        for feed in accepted:
            trial.take([feed])
            reach.ran([feed])
            if trial.shows_something:
                break
        for feed in _other_ways(theirs, source, reach):
            trial.take([feed])
    return trial.result(reach)


class _Trial:
    """The runs of two models, and the worst of what they show."""

    def __init__(
        self, theirs: Any, ours: Any, kind: str, max_error: float | None, blame: Blame
    ) -> None:
        self.theirs, self.ours, self.kind = theirs, ours, kind
        self.max_error, self.blame = max_error, blame
        self.worst: _Worst | None = None
        self.runs = 0

    @property
    def shows_something(self) -> bool:
        """Whether the models were compared where they may differ."""
        return self.worst is not None and (self.worst.error > 0 or not self.blame.suspects)

    def take(self, feeds: Sequence[Feed]) -> None:
        """Raises VerificationError where the quantized model is not what was promised."""
        names = [o.name for o in self.theirs.get_outputs()]
        runs = [_run_both(self.theirs, self.ours, feed, self.kind) for feed in feeds]
        here = _compare(names, runs, self.blame, bounded=self.max_error is not None)
        if here is not None and self.max_error is not None and here.error > self.max_error:
            raise _too_far(here, self.kind, self.max_error, self.blame)
        self.runs = len(runs) + (self.runs if self.shows_something else 0)
        if self.worst is None or (here is not None and here.error > self.worst.error):
            self.worst = here

    def result(self, reach: Reach) -> Verification:
        """What the runs showed; the layers that none came to are named."""
        worst = self.worst
        if worst is None:
            detail = "no output holds finite floating-point numbers, so nothing could be compared"
            return Verification("loaded", self.kind, self.runs, detail=detail)
        detail = "" if self.shows_something else EQUAL
        if not detail and reach.missing:
            detail = _not_reached(reach)
        return Verification(
            "passed", self.kind, self.runs, worst.error, worst.cosine, self.max_error, detail
        )


def _not_reached(reach: Reach) -> str:
    names, more = reach.missing[:MOST_NAMED], len(reach.missing) - MOST_NAMED
    named = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    layers = "layers" if len(reach.missing) > 1 else "layer"
    late = ", in the time there was for it," if reach.seconds <= 0 else ""
    return (
        f"these inputs do not{late} lead to the quantized {layers} {named}: pass check_inputs "
        "(--inputs data.npz) that do"
    )


def _other_ways(theirs: Any, source: Source, reach: Reach) -> Iterator[Feed]:
    """Made-up inputs that lead to layers which no others came to, while there are such layers."""
    if not reach.missing:
        return
    model = load(source.origin).model
    constants = Constants(opset_of(model))
    for way in range(ways(model, constants)):
        guesses = made_up(model, constants, way=way)
        accepted = (g for g in guesses if _problem(theirs, g) is None)
        for feed in islice(accepted, SIZES_A_WAY):
            missing = len(reach.missing)
            if not missing or reach.seconds <= 0:
                return
            reach.ran([feed])
            if len(reach.missing) < missing:
                yield feed


def _too_far(worst: _Worst, kind: str, max_error: float, blame: Blame) -> VerificationError:
    layer = blame.layer(worst.feed)
    return VerificationError(
        f"the quantized model is too far from the float one: error {worst.error:.4g} at output "
        f"{worst.output!r} on inputs that were {kind}, above the recipe's max_error "
        f"{max_error:g}.{_advice(layer)}",
        layer,
    )


def _compare(
    names: Sequence[str], runs: Sequence[_Run], blame: Blame, *, bounded: bool
) -> _Worst | None:
    """The worst output, or None where no output holds a finite floating-point number."""
    worst: _Worst | None = None
    for i, name in enumerate(names):
        floats = [run for run in runs if _is_float(run.expected[i])]
        if not bounded:
            floats = [r for r in floats if r.got[i].shape == r.expected[i].shape]
        for run in floats:
            _check(name, (run.expected[i], run.got[i]), run.feed, blame)
        expected = [_finite(run.expected[i], run.expected[i]) for run in floats]
        got = [_finite(run.got[i], run.expected[i]) for run in floats]
        if not sum(a.size for a in expected):
            continue
        reference, other = np.concatenate(expected), np.concatenate(got)
        error = relative_error(reference, other)
        if worst is None or error > worst.error:
            apart = [float(np.square(b - a).sum()) for a, b in zip(expected, got, strict=True)]
            feed = floats[apart.index(max(apart))].feed
            worst = _Worst(error, cosine_error(reference, other), name, feed)
    return worst


def _check(name: str, pair: Pair, feed: Feed, blame: Blame) -> None:
    """The same shape, and finite wherever the float model is."""
    a, b = pair
    if a.shape != b.shape:
        raise VerificationError(
            f"output {name!r} of the quantized model has the shape {list(b.shape)}, the float "
            f"model's has {list(a.shape)}. Where its size depends on the data (boxes found, tokens "
            "kept), pass check_inputs on which it does not change, or verify=False"
        )
    bad = ~np.isfinite(b) & np.isfinite(a)
    if bad.any():
        layer = blame.layer(feed)
        raise VerificationError(
            f"output {name!r} of the quantized model holds {int(bad.sum())} non-finite numbers "
            f"where the float model's are finite.{_advice(layer)}",
            layer,
        )


def _advice(layer: str | None) -> str:
    """The end of an error message: where to look and what to do."""
    if layer is None:
        return " Exclude layers until it is close, or choose a more accurate recipe."
    return (
        f" Look at layer {layer!r} first: exclude it (nodes_to_exclude, --exclude), choose a more "
        "accurate recipe, or raise max_error in a recipe file."
    )


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _finite(values: npt.NDArray[Any], where: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    flat: npt.NDArray[np.float64] = values[np.isfinite(where)].astype(np.float64).ravel()
    return flat


def _open_float(source: Source) -> Any:
    """A session, or why there is none."""
    try:
        origin = source.origin
        return open_session(origin if isinstance(origin, Path) else origin.SerializeToString())
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
        return brief(error)


def _open_quantized(path: Path, float_model: Any) -> Any:
    try:
        with session_options() as options:
            return session(path, sess_options=options)
    except Exception as error:
        neither = ""
        if isinstance(float_model, str):
            neither = (
                f"; nor the float model: {float_model}. If they need operators of another "
                f"library, {HINT}; or pass verify=False (--no-verify)"
            )
        raise VerificationError(
            f"ONNX Runtime {ort.__version__} does not load the quantized model: "
            f"{brief(error.__cause__ or error)}{neither}"
        ) from error


def _accepted(float_model: Any, source: Source) -> Iterator[Feed] | str:
    """The made-up inputs that the float model accepts, or why there are none."""
    model = load(source.origin).model
    reason = "all that came to mind are empty or too large"
    guesses = made_up(model, Constants(opset_of(model)))
    for feed in guesses:
        problem = _problem(float_model, feed)
        if problem is None:
            others = (g for g in guesses if _problem(float_model, g) is None)
            return chain([feed], others)
        reason = problem
    return (
        f"no inputs could be made up that the float model accepts ({reason}); pass "
        "check_inputs (--inputs data.npz) to compare"
    )


def _problem(model: Any, feed: Feed) -> str | None:
    try:
        model.run(None, feed)
    except Exception as error:  # noqa: BLE001 - a wrong guess fails in many ways
        return brief(error)
    return None


def _run_both(theirs: Any, ours: Any, feed: Feed, kind: str) -> _Run:
    try:
        names = [o.name for o in theirs.get_outputs()]
        expected = theirs.run(names, feed)
    except Exception as error:
        raise InputDataError(
            f"the float model rejects the inputs that were {kind}: {brief(error)}; give inputs "
            "(check_inputs, --inputs) on which it runs"
        ) from error
    try:
        return _Run(feed, expected, ours.run(names, feed))
    except Exception as error:
        raise VerificationError(
            f"the quantized model fails on inputs that the float model accepts: {brief(error)}. "
            "Exclude layers until it runs, and please report it"
        ) from error
