"""The memory that a model takes, measured in a process of its own."""

from __future__ import annotations

import importlib
import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from octavo.core.fresh_process import ChildError, added_at_peak, call, require_memory_figures
from octavo.errors import ModelError, brief
from octavo.results.target import Feed
from octavo.torch.run.calls import Caller


@dataclass(frozen=True)
class MeasuredRun:
    """How another process comes by a model, and calls it.

    `factory` is the float model's as `module:factory`, "" where it has none. `path` is a file that
    octavo.torch.save wrote, for the factory, or else torch.save; None: the factory's own model.
    `modules` are those to import first, whose memory is not the model's.
    """

    factory: str
    path: Path | None
    modules: tuple[str, ...]
    caller: Caller
    feed: Feed

    def model(self) -> nn.Module:
        """Return the model, from the factory or the file."""
        if self.path is None:
            from octavo.torch.named_models import named_model

            return named_model(self.factory).eval()
        if not self.factory:
            found: nn.Module = torch.load(self.path, weights_only=False)
            return found.eval()
        from octavo.torch.files.load import load
        from octavo.torch.named_models import named_factory

        factory = named_factory(self.factory)
        try:
            return load(self.path, factory)
        except ModelError:  # it cannot be built on device meta
            return load(self.path, factory, skeleton="cpu")


def peak_memory(model: nn.Module, factory: str, saved: bool, caller: Caller, feed: Feed) -> int:
    """Bytes that opening and running `model` add to a fresh process, at their peak.

    `saved`: it is quantized, and opened from a file; else a factory makes it there. Raises
    ModelError where the other process cannot have the model, or cannot tell its memory.
    """
    require_memory_figures(
        "a process's peak memory is known on Linux only; choose another objective"
    )
    if not factory:
        _refuse_scripts(model)
    modules = tuple(sorted({type(m).__module__ for m in model.modules()}))
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        path = Path(folder) / "model" if saved or not factory else None
        if path is not None:
            _write(model, path, factory)
        opening = MeasuredRun(factory, path, modules, caller, feed)
        try:
            return int(call(measure, opening=opening))
        except ChildError as error:
            raise ModelError(
                f"the process that measures memory ended with exit code {error.exit_code}: "
                f"{error.last_line}"
            ) from None


def _refuse_scripts(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if type(module).__module__ == "__main__":
            raise ModelError(
                f"memory is measured in a process of its own, which cannot have {name or 'a model'}"
                f" of type {type(module).__name__}, as the running script defines that: move it to "
                "a module, or choose another objective"
            )


def _write(model: nn.Module, path: Path, factory: str) -> None:
    if factory:
        from octavo.torch.files.save import save

        save(model, path)
        return
    try:
        torch.save(model, path)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ModelError(
            f"{type(model).__name__} cannot be pickled for a process that measures its memory: "
            f"{brief(error)}; name it as module:factory"
        ) from error


def measure(opening: MeasuredRun) -> int:
    """Return the bytes that opening and running the model adds at its peak, imports excepted."""
    made_by = opening.factory.partition(":")[0] if ":" in opening.factory else "transformers"
    for name in (*opening.modules, made_by if opening.factory else ""):
        if name and name != "__main__":
            importlib.import_module(name)
    _warm_up()
    return added_at_peak(lambda: opening.caller.run(opening.model(), opening.feed))


def _warm_up() -> None:
    """Threads and buffers that libraries make in their first call."""
    from octavo.torch.layers.linear import QuantizedLinear

    x = torch.ones(64, 64)
    with torch.inference_mode():
        QuantizedLinear.from_float(nn.Linear(64, 64))(x @ x)
