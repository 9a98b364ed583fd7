"""`octavo compare module:factory model.safetensors`: what was saved beside the float model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from octavo.core.feeds import read_runs
from octavo.errors import InputDataError
from octavo.recipe.comparison import Comparison
from octavo.recipe.target import Feed
from octavo.torch.comparing.compare import compare_calls
from octavo.torch.load import load
from octavo.torch.locate import made_by
from octavo.torch.tuning.calls import Caller
from octavo.torch.tuning.target import TorchTarget


def compare_saved(factory: str, saved: Path, inputs: Path | None) -> Comparison:
    """Compares what `factory` (`module:name`) makes with the model in `saved`.

    `inputs` is a .npz file (one run) or a .jsonl file (one run a line) by the names of forward's
    parameters, or "0", "1", ...; made up where it is None. Raises as `compare`, and ModelError for
    a factory that fails or a file that is not of this model.
    """
    floating = made_by(factory).eval()
    quantized = load(saved, partial(made_by, factory))
    feeds: list[Feed]
    if inputs is None:
        feeds = list(TorchTarget(floating).made_up({}, 0))
    else:
        feeds = [_feed(run, where) for where, run in read_runs(inputs)]
    caller = Caller(floating)
    calls = [caller.arguments(feed) for feed in feeds]
    kind = "made up" if inputs is None else "given"
    found = compare_calls(floating, quantized, calls, kind)
    return replace(found, float_model=factory, quantized_model=str(saved))


def _feed(run: Any, where: str) -> Feed:
    if not isinstance(run, Mapping):
        raise InputDataError(
            f"inputs {where}: a run maps names of inputs to arrays, and this is a "
            f'{type(run).__name__}; give one such as {{"x": [[0.5, 1.0]]}}'
        )
    return {name: np.asarray(value) for name, value in run.items()}
