"""Compares a quantized model with the float one, as a user will run it: all optimizations on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import onnxruntime as ort

from octavo.errors import VerificationError, brief
from octavo.graph.analysis.walk import opset_of
from octavo.onnx.check.coverage import BranchCoverage
from octavo.onnx.check.distance import Distance, Run
from octavo.onnx.check.findings import Findings
from octavo.onnx.check.layer_effects import LayerEffects
from octavo.onnx.check.model_pair import ModelPair
from octavo.onnx.check.outputs import OutputComparison
from octavo.onnx.check.runs import NOT_MADE_UP, NOTHING_ELSE, Runs, open_float
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import HINT, session_options
from octavo.onnx.inputs import Feed, branches, describe, shapes_of
from octavo.onnx.read.load import Source
from octavo.onnx.session import session
from octavo.results.report import LayerOutcome, Verification

EQUAL = "the outputs are equal to the last bit: perhaps these inputs do not reach the layers"
SIZES = 2
"""How many made-up inputs are compared at least: of different sizes where the model takes them."""
MORE = 3
"""How many others are tried where these show nothing."""
SIZES_A_BRANCH = 3
"""How many made-up inputs are tried for each branch of a model that has some."""
MOST_LAYERS_NAMED = 5  # layers in a message
NO_OUTPUTS = "the model has no outputs that quantized layers lead to"


def verify(
    source: Source,
    quantized: Path,
    feeds: Sequence[Feed] | None,
    max_error: float | None,
    outcomes: Sequence[LayerOutcome],
    *,
    advice: str | None = None,
) -> Verification:
    """Compare the quantized model with the float model of `source`.

    Raises VerificationError if the quantized model does not load or is not what was promised.
    `feeds` are the inputs that were given; None has them made up, within a budget of memory and
    time. Where the float model itself does not load or rejects every made-up input, or no output
    shows anything, the status is "unchecked". With `max_error=None` any finite difference passes,
    and outputs whose shapes differ are left out: for a model whose accuracy was measured.
    `advice` is what an error says to do, by default what a recipe offers.
    """
    kind = "made up" if feeds is None else "given"
    theirs = open_float(source)
    ours = _open_quantized(quantized, theirs)
    if isinstance(theirs, str):
        detail = f"the float model does not load in ONNX Runtime: {theirs}"
        return Verification("unchecked", kind, detail=detail)
    runs = Runs(theirs, ours, source)
    check = _Check(source, quantized, runs, max_error, outcomes, advice)
    return check.made_up() if feeds is None else check.given(feeds)


class _Check:
    """The comparison of one quantized model."""

    def __init__(
        self,
        source: Source,
        quantized: Path,
        runs: Runs,
        max_error: float | None,
        outcomes: Sequence[LayerOutcome],
        advice: str | None,
    ) -> None:
        self._runs, self._max_error, self._given_advice = runs, max_error, advice
        layers = [o.layer.name for o in outcomes if o.quantized]
        self._pair = ModelPair(source, quantized, layers)
        self._outputs = OutputComparison(runs.names, self._pair, runs.again)
        self._effects = LayerEffects(self._pair, source, outcomes)
        self._coverage = BranchCoverage(source, outcomes)
        self._suspects = len(layers)
        self._ran: list[Run] = []
        self._found = Findings()

    def given(self, feeds: Sequence[Feed]) -> Verification:
        """Compare the models on inputs of the user's."""
        ran = self._runs.given(feeds)
        self._take(ran, "given")
        self._coverage.ran(feeds)
        return self._result("given")

    def made_up(self) -> Verification:
        """Compare the models on inputs that the graph suggests."""
        candidates, first, none_taken = self._runs.accepted(), list[Run](), True
        with suppress(TimeoutError):
            for taken in islice(candidates, SIZES):
                none_taken = False
                first.append(self._runs.both(taken))
        if none_taken:
            detail = f"{NOT_MADE_UP} ({self._runs.refused or NOTHING_ELSE})"
            return Verification("unchecked", "made up", detail=detail)
        with suppress(TimeoutError):
            if first:
                self._take(first, "made up")
                self._coverage.ran([run.feed for run in first])
            if first and not self._is_done:
                self._try_others(islice(candidates, MORE))
            for run in self._other_branches():
                self._take([run], "made up")
        if not self._ran:
            detail = "the quantized model was not done in time on inputs that were made up"
            return Verification("unchecked", "made up", detail=detail)
        return self._result("made up")

    @property
    def _is_done(self) -> bool:
        """Tell whether the models were compared where they may differ."""
        return self._found.is_done or (self._found.worst is not None and not self._suspects)

    def _try_others(self, candidates: Iterator[Any]) -> None:
        for taken in candidates:
            run = self._runs.both(taken)
            self._take([run], "made up")
            self._coverage.ran([run.feed])
            if self._is_done:
                return

    def _other_branches(self) -> Iterator[Run]:
        """Yield runs that reach layers which no others reached, while there are such layers."""
        if not self._coverage.missing:
            return
        model = self._runs.model
        for branch in range(branches(model, Constants(opset_of(model)))):
            for taken in islice(self._runs.accepted(branch), SIZES_A_BRANCH):
                missing = len(self._coverage.missing)
                if not missing or self._coverage.seconds <= 0:
                    return
                self._coverage.ran([taken.feed])
                if len(self._coverage.missing) < missing:
                    yield self._runs.both(taken)

    def _take(self, runs: Sequence[Run], kind: str) -> None:
        """Compare `runs`; raise VerificationError where the quantized model is not as promised."""
        found = self._outputs.compare(runs, self._max_error)
        if found.mismatches and self._max_error is not None:
            raise _other_shape(found)
        worst = found.worst
        if worst is not None and worst.non_finite:
            raise self._not_finite(worst)
        if worst is not None and self._max_error is not None and worst.error > self._max_error:
            raise self._too_far(worst, kind)
        if not self._is_done:  # what was shown so far is less than these may show
            self._ran = []
        self._ran += runs
        if _says_more(found, self._found):
            self._found = found

    def _result(self, kind: str) -> Verification:
        """Return what the runs showed, with the names of the layers that none came to."""
        found, missing = self._found, tuple(self._coverage.missing)
        if self._suspects and found.worst is not None and not found.worst.error:
            found = self._equal_outputs(found)
        feeds = [run.feed for run in self._ran]
        return found.verification(
            kind,
            len(self._ran),
            self._max_error,
            shapes_of(feeds) if kind == "given" else describe(feeds, self._runs.model),
            nothing=NO_OUTPUTS,
            more=_not_reached(self._coverage) if missing else "",
            unreached=missing,
            padding=sum(run.padding.rows for run in self._ran),
        )

    def _equal_outputs(self, found: Findings) -> Findings:
        """Return what equal outputs mean: that the layers are lossless, or were not reached."""
        if len(self._coverage.missing) == self._suspects:
            return Findings(unresolved=(EQUAL,))
        at = self._outputs.hidden_difference(self._ran)
        if at is None:
            return Findings(unresolved=(EQUAL,)) if self._pair.layers else found
        if not at.error:
            return found  # lossless
        if self._max_error is not None and at.error > self._max_error:
            far = f"no output shows it, but {at.where.removeprefix('at ')} is {at.error:.4g} away"
            return Findings(unresolved=(far,))
        return Findings((at,))

    def _not_finite(self, worst: Distance) -> VerificationError:
        layer = self._effects.worst_layer(worst.feed, worst.value, worst.forced)
        return VerificationError(
            f"{self._name(worst)} of the quantized model holds {worst.non_finite} non-finite "
            f"numbers where the float model's are finite.{self._advice(layer)}",
            layer,
        )

    def _too_far(self, worst: Distance, kind: str) -> VerificationError:
        layer = self._effects.worst_layer(worst.feed, worst.value, worst.forced)
        what = self._name(worst) + (f", {worst.where}" if worst.where else "")
        first = ""
        if kind == "made up":
            shapes = describe([worst.feed], self._runs.model)
            first = (
                " Those inputs were made up, and may mislead: pass some that the model gets in use "
                f"(check_inputs, --inputs data.npz) first. They were: {shapes}."
            )
        return VerificationError(
            f"the quantized model is too far from the float one: error {worst.error:.4g} at "
            f"{what}, on inputs that were {kind}, above the recipe's max_error "
            f"{self._max_error:g}.{first}{self._advice(layer)}",
            layer,
        )

    def _advice(self, layer: str | None) -> str:
        return _advice(layer) if self._given_advice is None else self._given_advice

    def _name(self, worst: Distance) -> str:
        what = "output" if worst.output in self._runs.names else "value"
        return f"{what} {worst.output!r}"


def _says_more(found: Findings, before: Findings) -> bool:
    """Tell whether findings are the better ones: of whole outputs, or else of a larger error."""
    if found.worst is None or before.worst is None:
        return found.worst is not None or before.worst is None
    if found.is_done != before.is_done:
        return found.is_done
    return found.worst.error > before.worst.error


def _not_reached(coverage: BranchCoverage) -> str:
    names, more = coverage.missing[:MOST_LAYERS_NAMED], len(coverage.missing) - MOST_LAYERS_NAMED
    named = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    layers = "layers" if len(coverage.missing) > 1 else "layer"
    late = ", in the time there was for it," if coverage.seconds <= 0 else ""
    return (
        f"these inputs do not{late} lead to the quantized {layers} {named}: pass check_inputs "
        "(--inputs data.npz) that do"
    )


def _other_shape(found: Findings) -> VerificationError:
    other = found.mismatches[0]
    return VerificationError(
        f"output {other.output!r} of the quantized model has the shape {list(other.got)}, the "
        f"float model's has {list(other.expected)}. Where its size depends on the data (boxes "
        "found, tokens kept), pass check_inputs (--inputs data.npz) on which it does not change, "
        "or verify=False (--no-verify)"
    )


def _advice(layer: str | None) -> str:
    """Return the end of an error message: where to look and what to do."""
    if layer is None:
        return " Exclude layers until it is close, or choose a more accurate recipe."
    return (
        f" Look at layer {layer!r} first: exclude it (nodes_to_exclude, --exclude), choose a more "
        "accurate recipe, or raise max_error in a recipe file."
    )


def made_up_feeds(source: Source) -> Iterator[Feed]:
    """Yield made-up inputs that the float model accepts."""
    session = open_float(source)
    if not isinstance(session, str):
        for taken in Runs(session, session, source).accepted():
            yield taken.feed


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
