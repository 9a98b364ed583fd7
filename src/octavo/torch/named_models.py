"""Float PyTorch models by name, as the command line has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from octavo.core.feeds import read_runs
from octavo.errors import InputDataError
from octavo.files.checkpoints import names_checkpoint
from octavo.results.target import Feed
from octavo.torch.files.factories import make_model
from octavo.torch.files.load import load


def named_model(text: str) -> nn.Module:
    """Load the float32 model that `module:factory` makes or a checkpoint's folder or name holds.

    Raises ModelError, which says what is missing or fails.
    """
    if not names_checkpoint(text):
        return make_model(text)
    from octavo.torch.hub.checkpoint import find_checkpoint

    loaded: nn.Module = find_checkpoint(text).load()
    return loaded


def named_factory(text: str) -> Callable[[], nn.Module]:
    """Return what builds the model of `module:factory` or of a checkpoint.

    A checkpoint's is built without its weights, for a file that has them.
    """
    if not names_checkpoint(text):
        return partial(make_model, text)
    from octavo.torch.hub.checkpoint import find_checkpoint

    return find_checkpoint(text).build


def named_inputs(text: str, path: Path) -> list[Feed]:
    """Read the runs in a file, by names of inputs; those of a checkpoint may be texts.

    Raises InputDataError for what is no run.
    """
    if not names_checkpoint(text):
        return [_feed(run, where) for where, run in read_runs(path)]
    from octavo.torch.hub.checkpoint import find_checkpoint
    from octavo.torch.hub.samples import read_samples

    return list(read_samples(path, find_checkpoint(text)))


def _feed(run: Any, where: str) -> Feed:
    if not isinstance(run, Mapping):
        raise InputDataError(
            f"inputs {where}: a run maps names of inputs to arrays, and this is a "
            f'{type(run).__name__}; give one such as {{"x": [[0.5, 1.0]]}}'
        )
    return {name: np.asarray(value) for name, value in run.items()}


def named_quantized(factory: str, saved: Path) -> nn.Module:
    """Load the quantized model in `saved`. Raises ModelError.

    `saved` is a file that `octavo.torch.save` wrote of what `factory` makes, or a folder that
    save_pretrained wrote.
    """
    if not saved.is_dir():
        return load(saved, named_factory(factory))
    from octavo.torch.hub.checkpoint import find_checkpoint

    loaded: nn.Module = find_checkpoint(saved).load(quantized=True)
    return loaded
