"""Float PyTorch models by name, as the command line has them."""

from __future__ import annotations

from torch import nn

from octavo.files.checkpoints import names_checkpoint
from octavo.torch.files.factories import make_model


def named_model(text: str) -> nn.Module:
    """What `module:factory` makes, or the checkpoint of a folder or name holds, in float32.

    Raises ModelError, which says what is missing or fails.
    """
    if not names_checkpoint(text):
        return make_model(text)
    from octavo.torch.hub.checkpoint import find_checkpoint

    loaded: nn.Module = find_checkpoint(text).load()
    return loaded
