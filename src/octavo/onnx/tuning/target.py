"""`OnnxTarget`: one ONNX model as tuning sees it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

import octavo
from octavo.core.form import Form
from octavo.core.form import Target as FormTarget
from octavo.errors import OptionError, OutputError, RecipeError, did_you_mean
from octavo.files.lookup import refuse_no_path
from octavo.files.staging import Staging, output_error
from octavo.onnx.check.verify import verify
from octavo.onnx.custom_ops import NO_PROCESS, CustomOps, Libraries
from octavo.onnx.inputs import read_inputs, required_inputs
from octavo.onnx.read.load import Origin, Source, load
from octavo.onnx.run.inputs import random_feeds
from octavo.onnx.run.sessions import (
    ModelSession,
    Scratch,
    built_session,
    feed_by_name,
    open_session,
    peak_memory,
    total_bytes,
)
from octavo.onnx.tuning.sensitivity import Sensitivity
from octavo.onnx.tuning.static import copy_model, is_static, quantize_static
from octavo.onnx.tuning.writing import LayerDecisions, Writer
from octavo.recipe import PRESETS, Decision, Recipe, Scheme
from octavo.results.report import Report
from octavo.results.target import Built, Feed

SWITCHED_FROM = 3  # sets of layers; fewer conversions take less time than one with switches
RAISED = {
    "portable": ("int8-block", "float16"),
    "native": ("int8-accurate", "int8-block", "float16"),
}
"""Presets whose default schemes are more accurate than that of `int8`, by target.

The fastest first. Groups of inputs are native's alone: in portable files `int8-accurate` has a
tenth less error, which mends no layer.
"""


class OnnxTarget:
    """The float model at a path, or a ModelProto, which is not changed: an `octavo` `Target`.

    Args:
        model: path of the model (made absolute), or the model.
        target: as in `quantize_dynamic`, None is portable; of no account with calibration inputs,
            which mean static quantization by ONNX Runtime.
        cpu: as in `quantize_dynamic`.
        quant_format: as in `quantize_dynamic`; for static quantization "qoperator" writes integer
            operators and "qdq" QuantizeLinear/DequantizeLinear pairs.
        threads: of each session; None leaves them to ONNX Runtime.
        sess_options: as of `quantize_dynamic`, for operators of other libraries. Such a target
            stays in its process: with workers give `custom_ops`.
        custom_ops: as of `quantize_dynamic`.

    Models are written to temporary folders (TMPDIR) that are gone once they are open. Every method
    raises what `quantize_dynamic` raises for the model. `label` is the path as it was given.
    """

    output_suffix = ".onnx"

    def __init__(
        self,
        model: str | Path | onnx.ModelProto,
        *,
        target: str | None = None,
        cpu: str = "vnni",
        quant_format: str = "qoperator",
        threads: int | None = None,
        sess_options: ort.SessionOptions | None = None,
        custom_ops: Libraries | None = None,
    ) -> None:
        if not isinstance(model, onnx.ModelProto):
            refuse_no_path(model, "model", model=True)
        if threads is not None and (isinstance(threads, bool) or threads < 1):
            raise OptionError(f"threads={threads!r}: give a number above 0, or leave it out")
        self._origin: Origin
        if isinstance(model, onnx.ModelProto):
            self._origin, self.label = model, "(ModelProto)"
        else:
            self._origin, self.label = Path(model).absolute(), str(model)
        self._form = Form.of(target or "portable", cpu, quant_format)
        self._target_said = target is not None
        self.threads = threads
        self._custom_ops = CustomOps.of(custom_ops, sess_options)
        self._forget()

    def _forget(self) -> None:
        """Begins without anything that was read, converted or opened."""
        self._read: Source | None = None
        self._layers = LayerDecisions(self._origin, self._form)
        self._writer = Writer(self._origin, self._form)
        self._sensitivity: Sensitivity | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._custom_ops.options is not None:
            raise OptionError(NO_PROCESS)
        origin = self._origin
        return {
            "_origin": origin if isinstance(origin, Path) else origin.SerializeToString(),
            "_custom_ops": self._custom_ops.libraries,
            **{name: getattr(self, name) for name in ("label", "threads", "_form", "_target_said")},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(state["_origin"], bytes):
            self._origin = onnx.load_from_string(state["_origin"])
        self._custom_ops = CustomOps.of(state["_custom_ops"])
        self._forget()

    @property
    def _source(self) -> Source:
        """The model as it is, to read of."""
        if self._read is None:
            self._read = load(self._origin)
        return self._read

    def fingerprint(self) -> str:
        """SHA-256 of the model's files and the options; the file's name is no part of it."""
        return _digest(self._source, {**self._form.words, "threads": self.threads})

    def decisions(self, recipe: Recipe) -> list[Decision]:
        """Return `octavo.onnx.inspect(model, recipe).decisions`; the model is read once.

        Static quantization is of the same layers, but for those that it has no form for.
        """
        return self._layers.decisions(recipe)

    def raised(self) -> tuple[Scheme, ...]:
        """Schemes more accurate than the default one, the fastest first, for this target."""
        return tuple(PRESETS[name].default for name in RAISED[self._form.target])

    def native(self) -> OnnxTarget | None:
        """Return this target as target native, where none was said and the form may be that one."""
        if self._target_said or self._form.qdq or self._form.native:
            return None
        other = object.__new__(OnnxTarget)
        other.__dict__.update(self.__dict__)  # a copy would be refused where options are a user's
        other._form = replace(self._form, target=FormTarget.NATIVE)
        other._forget()
        return other

    def float_model(self) -> Built:
        """Return the unmodified model, opened."""
        return self._opened(None, None)

    def build(self, recipe: Recipe, calibration: Sequence[Feed] | None = None) -> Built:
        """Build the quantized model, opened and not compared with the float one.

        With `calibration` by ONNX Runtime's static quantizer. Where every layer stays float, the
        float model itself.
        """
        return self._opened(recipe, calibration)

    def _opened(self, recipe: Recipe | None, calibration: Sequence[Feed] | None) -> Built:
        with self.opener(recipe, calibration) as opened:
            built = opened()
        built.model.proto = partial(self._proto, recipe, calibration)
        return built

    def _proto(self, recipe: Recipe | None, calibration: Sequence[Feed] | None) -> onnx.ModelProto:
        with self._file(recipe, calibration) as (path, _, _):
            return onnx.load(path)

    @contextmanager
    def opener(
        self, recipe: Recipe | None, calibration: Sequence[Feed] | None = None
    ) -> Iterator[Callable[[], Built]]:
        """Give what opens the model (float for None) afresh; its file is written once, and is gone
        with the context."""
        with self._file(recipe, calibration) as (path, size, report):
            yield lambda: built_session(self._open(path), size, report)

    @contextmanager
    def _file(
        self, recipe: Recipe | None, calibration: Sequence[Feed] | None
    ) -> Iterator[tuple[Path, int, Report | None]]:
        """Give the model as a file, its size and report; the float one where no layer changes."""
        with Scratch() as place:
            report = None if recipe is None else self._write(recipe, calibration, place)
            if place.model.exists():
                yield place.model, total_bytes(place.folder), report
            elif isinstance(self._origin, Path):
                yield self._origin, self._source.bytes, None
            else:
                place.model.write_bytes(self._origin.SerializeToString())
                yield place.model, self._source.bytes, None

    def _open(self, path: Path) -> ModelSession:
        with self._custom_ops.in_force():
            return open_session(path, self.threads)

    def _write(
        self, recipe: Recipe, calibration: Sequence[Feed] | None, place: Scratch
    ) -> Report | None:
        """Write the quantized model, or nothing where every layer stays float."""
        decisions = self.decisions(recipe)
        if calibration is None:
            if all(d.scheme.is_float for d in decisions):
                return None
            return self._writer.write(recipe, place)
        if any(map(is_static, decisions)):
            fitted = self._fitted(calibration)
            with self._custom_ops.in_force():
                quantize_static(self._origin, decisions, fitted, place, self._form)
        return None

    def save(
        self, recipe: Recipe, out: Path, calibration: Sequence[Feed] | None = None
    ) -> Report | None:
        """Write the quantized model to `out`, whole or not at all.

        It must load, and be finite on made-up inputs wherever the float model is. How far it is
        from the float model there is reported and not bounded by the recipe's `max_error`: its
        accuracy was measured, and made-up inputs know less.
        """
        staging = Staging(out, self._source.files)
        with staging:
            report = None
            if calibration is None:
                with self._custom_ops.in_force():
                    report = self._writer.write(
                        recipe,
                        staging,
                        lambda source, converted: verify(
                            source, staging.model, None, None, converted.outcomes
                        ),
                    )
            else:
                self._save_static(recipe, staging, calibration)
            staging.commit()
        return report

    def _save_static(self, recipe: Recipe, staging: Staging, calibration: Sequence[Feed]) -> None:
        with self._file(recipe, calibration) as (path, _, _):
            try:
                copy_model(path, staging)
            except OutputError:
                raise
            except OSError as error:
                raise output_error(error, staging.out) from error
        self._open(staging.model)

    def made_up(self, shapes: Mapping[str, Sequence[int]], seed: int) -> list[Feed]:
        """Up to four inputs of one shape with random values that the float model has run on.

        Symbolic dimensions that an input shares with one whose shape is given follow it; what is
        left is guessed as for verification. Raises InputDataError.
        """
        return [*random_feeds(self._source, self.float_model().model, shapes, seed)]

    def errors(
        self, recipe: Recipe, sets: Sequence[Collection[str]], feeds: Sequence[Feed]
    ) -> list[float]:
        """Return for each set of layers the worst output's error with those alone quantized.

        One model with a switch behind each layer answers for many sets (`switches`); it is kept
        for the next call with the same recipe. Few sets are converted one by one. A weight that
        several layers share is held as all of them ask, also for a set with one of them. Raises
        RecipeError for unknown layers.
        """
        known = {d.layer.name for d in self.decisions(recipe)}
        for name in {name for layers in sets for name in layers}:
            if name not in known:
                raise RecipeError(f"the model has no layer {name!r}.{did_you_mean(name, known)}")
        model, fitted = self.float_model().model, self._fitted(feeds)
        with self._custom_ops.in_force():
            if self._sensitivity is None or self._sensitivity.recipe != recipe:
                if len(sets) < SWITCHED_FROM:
                    once = Sensitivity(self._writer, recipe, self.threads, switches=False)
                    return once.errors(model, sets, fitted)
                self._sensitivity = None  # the old one goes before the new one comes
                self._sensitivity = Sensitivity(self._writer, recipe, self.threads)
            return self._sensitivity.errors(model, sets, fitted)

    def peak_memory(
        self, recipe: Recipe | None, feed: Feed, calibration: Sequence[Feed] | None = None
    ) -> int:
        """Bytes that opening and running the model (float for None) add to a fresh process."""
        (inputs,) = self._fitted([feed])
        with self._custom_ops.in_force(), self._file(recipe, calibration) as (path, _, _):
            return peak_memory(path, inputs, self.threads)

    def _fitted(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Return feeds in the model's input types; InputDataError where they do not fit."""
        graph = self._source.model.graph
        inputs = [value.name or "" for value in required_inputs(graph)]
        return [*read_inputs([feed_by_name(feed, inputs) for feed in feeds], graph)]


def _digest(source: Source, options: Mapping[str, Any]) -> str:
    """SHA-256 of the model's bytes, those of its data files, the options and Octavo's version."""
    total = hashlib.sha256()
    total.update(json.dumps({**options, "octavo": octavo.__version__}, sort_keys=True).encode())
    if source.path is None:
        assert source.proto is not None
        total.update(source.proto.SerializeToString(deterministic=True))
    else:
        _add_file(source.path, total)
    for path in sorted(source.data_files):
        total.update(path.name.encode())
        _add_file(path, total)
    return total.hexdigest()


def _add_file(path: Path, total: Any) -> None:
    with path.open("rb", buffering=0) as file:
        piece = memoryview(bytearray(1 << 22))
        while count := file.readinto(piece):
            total.update(piece[:count])
