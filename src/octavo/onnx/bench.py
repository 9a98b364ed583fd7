"""ONNX files as a benchmark sees them: inputs that all take, sessions, memory, ONNX Runtime's own
quantization."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.core.fresh_process import ChildError, call
from octavo.errors import InputDataError, ModelError, OctavoError, brief, listed
from octavo.onnx.inputs import Feed, read_inputs
from octavo.onnx.read.load import Source, load
from octavo.onnx.run.inputs import random_feeds
from octavo.onnx.run.sessions import Scratch, open_session, peak_memory
from octavo.onnx.tuning.static import copy_model

Shapes = Mapping[str, Sequence[int]]


class BenchFile:
    """One file, float or quantized, of either target. `bytes` counts its data files too.

    Raises ModelError for what is no ONNX model.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path, self.name = path, str(path) if name is None else name
        self.source: Source = load(path)
        self.bytes = self.source.bytes

    def open(self, threads: int | None = None) -> Any:
        """Open a session. Raises ModelError, which names the file."""
        try:
            return open_session(self.path, threads)
        except ModelError as error:
            said = str(error).replace(str(self.path), self.name)
            named = self.name in said
            raise ModelError(said if named else f"{self.name}: {said}") from error

    def feed(self, shapes: Shapes) -> Feed:
        """Made-up inputs of the `shapes` that are given. Raises InputDataError and ModelError."""
        runner, give = self.open(), "shapes: --shape name=1x128,.."
        try:
            return random_feeds(self.source, runner, shapes, seed=0, give=give)[0]
        except InputDataError as error:
            raise InputDataError(f"{self.name}: {error}") from error

    def read(self, path: Path) -> Feed:
        """Read the first run in a file of inputs. Raises InputDataError."""
        feed = read_inputs(path, self.source.model.graph)[0]
        self.check(feed)
        return feed

    def check(self, feed: Feed) -> None:
        """Raise InputDataError where the model has other inputs or does not run on `feed`."""
        runner = self.open()
        names = [given.name for given in runner.get_inputs()]
        if set(names) != set(feed):
            raise InputDataError(f"{self.name} takes {listed(names)}, not {listed(feed)}")
        try:
            runner.run(None, feed)
        except Exception as error:  # a misfit fails in many ways
            raise InputDataError(f"{self.name} does not run: {brief(error)}") from error

    def opener(self, feed: Feed, threads: int | None) -> Callable[[], Callable[[], object]]:
        """Return a function that opens a session and returns another, which runs it on `feed`."""

        def made() -> Callable[[], object]:
            runner = self.open(threads)
            return lambda: runner.run(None, feed)

        return made

    def peak_memory(self, feed: Feed, threads: int | None) -> int:
        """Bytes that opening and one run add to a fresh process. Raises ModelError."""
        return peak_memory(self.path, feed, threads)


def quantized_by_ort(file: BenchFile, place: Scratch) -> Path:
    """Run `onnxruntime.quantization.quantize_dynamic` on `file`; return the result, in `place`.

    The quantizer writes beside its input, so it gets a copy. Raises ModelError with its reason.
    """
    with Scratch() as work:
        try:
            if file.source.data_files:
                copy_model(file.path, work)
            else:
                shutil.copyfile(file.path, work.model)
            call(
                run_quantizer,
                model=str(work.model),
                output=str(place.model),
                external=bool(file.source.data_files),
            )
        except (ChildError, OctavoError) as error:
            raise ModelError(brief(error)) from error
    return place.model


def run_quantizer(model: str, output: str, external: bool) -> None:
    """Run ONNX Runtime's quantizer, which logs and sets up `logging`: for a fresh process."""
    from onnxruntime.quantization import quantize_dynamic

    options: dict[str, Any] = {"use_external_data_format": external}
    quantize_dynamic(model, output, **options)
