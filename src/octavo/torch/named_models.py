"""Float PyTorch models by name, as the command line has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

from octavo.files.checkpoints import names_checkpoint
from octavo.torch.files.factories import make_model
from octavo.torch.files.load import load


def named_model(text: str) -> nn.Module:
    """What `module:factory` makes, or the checkpoint of a folder or name holds, in float32.

    Raises ModelError, which says what is missing or fails.
    """
    if not names_checkpoint(text):
        return make_model(text)
    from octavo.torch.hub.checkpoint import find_checkpoint

    loaded: nn.Module = find_checkpoint(text).load()
    return loaded


def named_factory(text: str) -> Callable[[], nn.Module]:
    """What builds such a model; a checkpoint's without its weights, for a file that has them."""
    if not names_checkpoint(text):
        return partial(make_model, text)
    from octavo.torch.hub.checkpoint import find_checkpoint

    return find_checkpoint(text).build


def named_quantized(factory: str, saved: Path) -> nn.Module:
    """The quantized model in `saved`: a file that `octavo.torch.save` wrote of what `factory`
    makes, or a folder that save_pretrained wrote. Raises ModelError."""
    if not saved.is_dir():
        return load(saved, named_factory(factory))
    from octavo.torch.hub.checkpoint import find_checkpoint

    loaded: nn.Module = find_checkpoint(saved).load(quantized=True)
    return loaded
