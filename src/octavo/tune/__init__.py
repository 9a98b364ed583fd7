"""Accuracy-driven tuning: the fastest recipe that keeps a measured accuracy.

Names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.tune.config.load import load_config as load_config
    from octavo.tune.config.result import Config as Config

_HOME = {
    "Config": "octavo.tune.config.result",
    "load_config": "octavo.tune.config.load",
}

__all__ = ["Config", "load_config"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'octavo.tune' has no attribute {name!r}; it has {__all__}")
    return getattr(importlib.import_module(_HOME[name]), name)
