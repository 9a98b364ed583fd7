"""What was saved of a PyTorch model beside the float one, which `module:factory` makes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from octavo.core.progress import Progress, quiet
from octavo.results.comparison import Comparison
from octavo.results.report import Report
from octavo.results.target import Feed
from octavo.torch.comparing.compare import compare_calls
from octavo.torch.named_models import named_inputs, named_model, named_quantized
from octavo.torch.quantize import report
from octavo.torch.run.calls import Caller
from octavo.torch.tuning.target import TorchTarget

Call = Callable[[], object]
Opener = Callable[[], Call]


def compare_saved(
    factory: str, saved: Path, inputs: Path | None, progress: Progress = quiet
) -> Comparison:
    """Compare what `factory` (`module:name`) makes with the model in `saved`.

    `inputs` is a .npz file (one run) or a .jsonl file (one run a line) by the names of forward's
    parameters, or "0", "1", ...; of a checkpoint lines may be texts; made up where it is None.
    Raises as `compare`, and ModelError for a factory that fails or a file that is not of this
    model.
    """
    floating = named_model(factory).eval()
    quantized = named_quantized(factory, saved)
    caller = Caller(floating)
    calls = [caller.arguments(feed) for feed in _feeds(floating, factory, inputs)]
    kind = "made up" if inputs is None else "given"
    found = compare_calls(floating, quantized, calls, kind, progress)
    return replace(found, float_model=factory, quantized_model=str(saved))


@dataclass(frozen=True)
class TimedPair:
    """What makes a copy of the float model and of the saved one, each ready to be called on copies
    of `feed`."""

    floating: Opener
    quantized: Opener
    feed: Feed


def timed_pair(factory: str, saved: Path, inputs: Path | None) -> TimedPair:
    """Return the models of `compare_saved`, for timing on the first of its `inputs`.

    Raises as `compare_saved` does.
    """
    floating = named_model(factory).eval()
    feed = _feeds(floating, factory, inputs)[0]
    arguments = Caller(floating).arguments(feed)

    def ready(model: nn.Module) -> Call:
        positional, keywords = copy.deepcopy(arguments)  # a forward may write into them

        def call() -> object:
            with torch.inference_mode():
                return model(*positional, **keywords)

        return call

    return TimedPair(
        lambda: ready(copy.deepcopy(floating)),
        lambda: ready(named_quantized(factory, saved)),
        feed,
    )


def saved_report(factory: str, saved: Path) -> Report:
    """Report what became of each layer, as the file `saved` says. Raises as `octavo.torch.load`."""
    return report(named_quantized(factory, saved))


def _feeds(floating: nn.Module, factory: str, inputs: Path | None) -> list[Feed]:
    if inputs is None:
        return list(TorchTarget(floating).made_up({}, 0, "inputs (--inputs DATA)"))
    return named_inputs(factory, inputs)
