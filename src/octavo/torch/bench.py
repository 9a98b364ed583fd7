"""Checkpoint folders as a benchmark sees them: inputs, modules to call, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from octavo.core.fresh_process import ChildError, added_at_peak, call, require_memory_figures
from octavo.errors import InputDataError, ModelError, brief
from octavo.results.target import Feed
from octavo.torch.hub.checkpoint import Checkpoint
from octavo.torch.hub.gguf_checkpoint import find_either
from octavo.torch.hub.samples import read_samples
from octavo.torch.run.calls import Caller
from octavo.torch.tuning.target import TorchTarget

Shapes = Mapping[str, Sequence[int]]


class BenchFolder:
    """A checkpoint, float or with integers, or a GGUF file, that is called in PyTorch.

    `bytes` are those of its tensors. Raises ModelError for what is no checkpoint.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._found = find_either(folder)
        self.name, self.bytes = name, self._found.bytes
        self._model = loaded(self._found)
        self._caller = Caller(self._model)

    def feed(self, shapes: Shapes) -> Feed:
        """Make up inputs of the `shapes` that are given. Raises InputDataError."""
        is_float = not self._found.method and not self._found.kept_by
        model = self._model if is_float else self._found.build()  # inputs are of a float model
        return TorchTarget(model.eval()).made_up(shapes, 0, "shapes: --shape name=1x128,..")[0]

    def read(self, path: Path) -> Feed:
        """Return the first run in the file. Raises InputDataError."""
        run = read_samples(path, self._found)[0]
        self.check(run)
        return run

    def check(self, feed: Feed) -> None:
        """Raise InputDataError where the model does not run on `feed`."""
        try:
            self._caller.run(self._model, feed)
        except Exception as error:  # a misfit fails in many ways
            raise InputDataError(f"{self.name} does not run: {brief(error)}") from error

    def opener(self, feed: Feed, threads: int | None) -> Callable[[], Callable[[], object]]:
        """Return a function that loads the model and returns one that runs the model on `feed`."""
        positional, keywords = self._caller.arguments(feed)

        def made() -> Callable[[], object]:
            model = loaded(self._found)

            def run() -> object:
                if threads is not None and torch.get_num_threads() != threads:
                    torch.set_num_threads(threads)
                with torch.inference_mode():
                    return model(*positional, **keywords)

            return run

        return made

    def peak_memory(self, feed: Feed, threads: int | None) -> int:
        """Return the bytes that loading and one run add to a fresh process. Raises ModelError."""
        require_memory_figures("a process's peak memory is known on Linux only")
        try:
            return int(call(measure, folder=self._folder, feed=feed, threads=threads))
        except ChildError as error:
            raise ModelError(f"{self.name}: {error.last_line}") from error


def loaded(found: Checkpoint) -> nn.Module:
    """Load the module of a checkpoint, quantized or float."""
    model: nn.Module = found.load(quantized=True)
    return model


def measure(folder: str, feed: Feed, threads: int | None) -> int:
    """Return the bytes that loading and one run add at peak; for use in a fresh process."""
    found = find_either(folder)
    found.skeleton()  # imports the model's code, whose memory is not the model's
    if threads is not None:
        torch.set_num_threads(threads)

    def run() -> None:
        model = loaded(found)
        Caller(model).run(model, feed)

    return added_at_peak(run)
