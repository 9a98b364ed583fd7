"""Checkpoints of Hugging Face's libraries: `octavo.torch.hub.export` and what goes with it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.torch.hub.checkpoint import Checkpoint as Checkpoint
    from octavo.torch.hub.checkpoint import find_checkpoint as find_checkpoint
    from octavo.torch.hub.export import export as export

_HOME = {
    "Checkpoint": "octavo.torch.hub.checkpoint",
    "export": "octavo.torch.hub.export",
    "find_checkpoint": "octavo.torch.hub.checkpoint",
}

__all__ = ["Checkpoint", "export", "find_checkpoint"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(
            f"module 'octavo.torch.hub' has no attribute {name!r}; it has {__all__}"
        )
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
