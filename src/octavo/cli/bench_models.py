"""What `octavo bench` times: ONNX files, folders of one, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from octavo.core.feeds import shape_text
from octavo.errors import InputDataError, ModelError, OptionError, listed
from octavo.files.checkpoints import is_gguf, names_checkpoint
from octavo.front_ends import names_factory, need_torch

Feed = Mapping[str, Any]
Shapes = Mapping[str, Sequence[int]]


class BenchModel(Protocol):
    """A model that is opened and run in turns with others."""

    name: str
    bytes: int

    def feed(self, shapes: Shapes) -> Any:
        """Make up inputs of these shapes."""

    def read(self, path: Path) -> Any:
        """Read the first run in a file of inputs."""

    def check(self, feed: Any) -> None:
        """Raise InputDataError where the model does not take `feed`."""

    def opener(self, feed: Any, threads: int | None) -> Callable[[], Callable[[], object]]:
        """Return a function that opens the model and returns one that runs the model on `feed`."""

    def peak_memory(self, feed: Any, threads: int | None) -> int:
        """Measure the bytes that opening the model and one run add to a fresh process."""


def bench_models(models: Sequence[str]) -> list[BenchModel]:
    """Return each model under its given name; a repeated one has its count, as in `a.onnx (2)`.

    Raises OptionError and ModelError.
    """
    for model in models:
        if names_factory(model):
            raise OptionError(
                f"{model!r} names a PyTorch model; bench takes ONNX files and checkpoints. Time "
                "modules in Python: octavo.measure.bench({'a': lambda: a(x), 'b': lambda: b(x)})"
            )
    found = []
    for i, model in enumerate(models):
        before = models[:i].count(model)
        found.append(_opened(model, f"{model} ({before + 1})" if before else model))
    return found


def _opened(model: str, name: str) -> BenchModel:
    if names_checkpoint(model) or is_gguf(model):
        need_torch(model)
        from octavo.torch.bench import BenchFolder

        return BenchFolder(model, name)
    from octavo.onnx.bench import BenchFile

    return BenchFile(_file_in(Path(model)), name)


def _file_in(path: Path) -> Path:
    """Return `path`, or the one ONNX file if `octavo quantize --to` wrote `path` as a folder."""
    if not path.is_dir() or not (path / "config.json").is_file():
        return path
    files = sorted([*path.glob("*.onnx"), *path.glob("*/*.onnx")])
    if len(files) > 1:
        raise ModelError(f"{path} holds {len(files)} ONNX files: {listed(files, 3)}; give one")
    return files[0] if files else path


def feeds(
    models: Sequence[BenchModel], shapes: Shapes, given: Path | None = None
) -> tuple[list[Any], list[str]]:
    """Return inputs for each of `models`, and notes.

    All models get the first one's inputs, so that they do the same work: the first run of the file
    `given`, or made-up ones without it. A model that does not take them gets inputs of its own.
    Raises InputDataError where a shape or a run does not fit.
    """
    common = models[0].feed(shapes) if given is None else models[0].read(given)
    found, notes = [common], []
    for model in models[1:]:
        try:
            model.check(common)
        except InputDataError as error:
            found.append(model.feed(shapes))
            notes.append(f"{error}; it is timed on inputs of its own: {shape_text(found[-1])}")
        else:
            found.append(common)
    return found, notes
