"""Compares a quantized model with the float one, as a user will run it: all optimizations on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from octavo.core.metrics import cosine_error, relative_error
from octavo.errors import InputDataError, VerificationError
from octavo.onnx.constants import Constants
from octavo.onnx.inputs import CheckInputs, Feed, made_up, read_inputs
from octavo.onnx.load import Source, load
from octavo.onnx.normalize import opset_of
from octavo.onnx.session import session
from octavo.recipe import LayerOutcome, Recipe, Verification

Outputs = list[npt.NDArray[Any]]


@dataclass(frozen=True)
class _Worst:
    """The worst output of all runs."""

    error: float
    cosine: float
    output: str


def verify(
    source: Source,
    quantized: Path,
    check_inputs: CheckInputs | None,
    recipe: Recipe,
    outcomes: Sequence[LayerOutcome],
) -> Verification:
    """Raises VerificationError if the quantized model does not load or is not what was promised.

    Where the float model itself does not load or rejects every made-up input, the quantized model
    is only loaded, and the result says so.
    """
    kind = "made up" if check_inputs is None else "given"
    ours = _open_quantized(quantized)
    float_model = load(source.path if source.path is not None else _proto(source)).model
    feeds = None
    if check_inputs is not None:
        feeds = read_inputs(check_inputs, float_model.graph)
    try:
        theirs = _open_float(source)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base
        return Verification(
            "loaded", kind, detail=f"the float model does not load in ONNX Runtime: {_line(error)}"
        )
    if feeds is None:
        constants = Constants(opset_of(float_model))
        tried = _first_that_runs(theirs, made_up(float_model, constants))
        if isinstance(tried, str):
            return Verification(
                "loaded",
                kind,
                detail=f"no inputs could be made up that the float model accepts ({tried}); pass "
                "check_inputs (--inputs data.npz) to compare",
            )
        feeds = [tried]
    names = [o.name for o in theirs.get_outputs()]
    pairs = [_run_both(theirs, ours, feed, kind) for feed in feeds]
    blame = _Blame(source, quantized, feeds[0], outcomes)
    worst = _compare(names, pairs, blame)
    if worst.error > recipe.max_error:
        layer = blame.layer()
        raise VerificationError(
            f"the quantized model is too far from the float one: error {worst.error:.4g} at output "
            f"{worst.output!r} on inputs that were {kind}, above the recipe's max_error "
            f"{recipe.max_error:g}.{blame.advice(layer)}",
            layer,
        )
    return Verification(
        "passed", kind, len(feeds), worst.error, worst.cosine, recipe.max_error
    )


def _compare(
    names: Sequence[str], pairs: Sequence[tuple[Outputs, Outputs]], blame: _Blame
) -> _Worst:
    worst = _Worst(0.0, 0.0, names[0] if names else "")
    for i, name in enumerate(names):
        floats = [(a[i], b[i]) for a, b in pairs if _is_float(a[i])]
        if not floats:
            continue
        for a, b in floats:
            bad = ~np.isfinite(b) & np.isfinite(a)
            if bad.any():
                layer = blame.layer()
                raise VerificationError(
                    f"output {name!r} of the quantized model holds {int(bad.sum())} non-finite "
                    f"numbers where the float model's are finite.{blame.advice(layer)}",
                    layer,
                )
        reference = np.concatenate([_finite(a, a) for a, _ in floats])
        other = np.concatenate([_finite(b, a) for a, b in floats])
        error = relative_error(reference, other)
        if error > worst.error or (error == worst.error and not worst.error):
            worst = _Worst(error, cosine_error(reference, other), name)
    return worst


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _finite(values: npt.NDArray[Any], where: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    flat: npt.NDArray[np.float64] = values[np.isfinite(where)].astype(np.float64).ravel()
    return flat


def _proto(source: Source) -> onnx.ModelProto:
    assert source.proto is not None
    return source.proto


def _options() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return options


def _open_float(source: Source) -> Any:
    model = str(source.path) if source.path is not None else _proto(source).SerializeToString()
    return ort.InferenceSession(model, _options(), providers=["CPUExecutionProvider"])


def _open_quantized(path: Path) -> Any:
    try:
        return session(path, sess_options=_options())
    except Exception as error:
        raise VerificationError(
            f"ONNX Runtime {ort.__version__} does not load the quantized model: {_line(error)}"
        ) from error


def _first_that_runs(model: Any, guesses: Any) -> Feed | str:
    """The first feed that the model accepts, or why the last one was refused."""
    reason = "it has no inputs to guess"
    for feed in guesses:
        try:
            model.run(None, feed)
        except Exception as error:  # noqa: BLE001 - a wrong guess fails in many ways
            reason = _line(error)
        else:
            return dict(feed)
    return reason


def _run_both(theirs: Any, ours: Any, feed: Feed, kind: str) -> tuple[Outputs, Outputs]:
    try:
        expected = theirs.run(None, feed)
    except Exception as error:
        raise InputDataError(
            f"the float model rejects the inputs that were {kind}: {_line(error)}"
        ) from error
    try:
        return expected, ours.run(None, feed)
    except Exception as error:
        raise VerificationError(
            f"the quantized model fails on inputs that the float model accepts: {_line(error)}"
        ) from error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + " ..."


class _Blame:
    """Finds the layer at which the two models part, by looking at every quantized layer's output."""

    def __init__(
        self, source: Source, quantized: Path, feed: Feed, outcomes: Sequence[LayerOutcome]
    ) -> None:
        self._source, self._quantized, self._feed = source, quantized, feed
        self._outcomes = [o for o in outcomes if o.quantized]

    def layer(self) -> str | None:
        """The layer whose output adds the largest error to what it was fed, or None."""
        try:
            steps = self._steps()
        except Exception:  # noqa: BLE001 - this only improves a message that is shown in any case
            return self._worst_weight()
        previous, found, jump = 0.0, None, 0.0
        for name, error in steps:
            if error - previous > jump:
                found, jump = name, error - previous
            previous = max(previous, error)
        return found or self._worst_weight()

    def advice(self, layer: str | None) -> str:
        """The end of an error message: where to look and what to do."""
        if layer is None:
            return " Exclude layers until it is close, or choose a more accurate recipe."
        return (
            f" Look at layer {layer!r} first: exclude it (nodes_to_exclude, --exclude), choose a "
            "more accurate recipe, or raise max_error in a recipe file."
        )

    def _worst_weight(self) -> str | None:
        known = [o for o in self._outcomes if o.sqnr_db is not None]
        return min(known, key=lambda o: o.sqnr_db or 0.0).layer.name if known else None

    def _steps(self) -> list[tuple[str, float]]:
        """(layer, error of its output), in the order in which layers run."""
        outputs = self._layer_outputs()
        theirs = self._with_outputs(self._source.path, list(outputs))
        ours = self._with_outputs(self._quantized, list(outputs))
        shared = [o for o in outputs if o in theirs and o in ours]
        steps = []
        for name in shared:
            a, b = theirs[name], ours[name]
            finite = np.isfinite(b).all() or not np.isfinite(a).all()
            error = relative_error(a, b) if finite else float("inf")
            steps.append((outputs[name], error))
        return steps

    def _layer_outputs(self) -> dict[str, str]:
        quantized = {o.layer.name for o in self._outcomes}
        model = load(self._source.path or _proto(self._source)).model
        return {
            (node.outputs[0].name or ""): node.name
            for node in model.graph
            if node.name in quantized and node.outputs
        }

    def _with_outputs(self, path: Path | None, names: Sequence[str]) -> dict[str, Any]:
        """Runs a model with more of its values as outputs."""
        source = _proto(self._source) if path is None else None
        proto = onnx.ModelProto()
        if source is not None:
            proto.CopyFrom(source)
        else:
            assert path is not None
            proto = onnx.load(str(path), load_external_data=True)
        made = {o for node in proto.graph.node for o in node.output}
        present = {o.name for o in proto.graph.output}
        wanted = [n for n in names if n in made]
        for name in wanted:
            if name not in present:
                proto.graph.output.append(
                    onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                )
        runner = ort.InferenceSession(
            proto.SerializeToString(), _options(), providers=["CPUExecutionProvider"]
        )
        return dict(zip(wanted, runner.run(wanted, self._feed), strict=True))
