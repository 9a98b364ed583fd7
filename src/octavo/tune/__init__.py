"""Accuracy-driven tuning: the fastest recipe that keeps a measured accuracy.

Names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.results.tuning import Status as Status
    from octavo.results.tuning import Trial as Trial
    from octavo.results.tuning import TuneResult as TuneResult
    from octavo.tune.api import tune as tune
    from octavo.tune.config.load import load_config as load_config
    from octavo.tune.config.result import Config as Config
    from octavo.tune.criterion import Criterion as Criterion
    from octavo.tune.objective import Objective as Objective
    from octavo.tune.quantization import Quantization as Quantization

_HOME = {
    "Config": "octavo.tune.config.result",
    "Criterion": "octavo.tune.criterion",
    "Objective": "octavo.tune.objective",
    "Quantization": "octavo.tune.quantization",
    "Status": "octavo.results.tuning",
    "Trial": "octavo.results.tuning",
    "TuneResult": "octavo.results.tuning",
    "load_config": "octavo.tune.config.load",
    "tune": "octavo.tune.api",
}

__all__ = [
    "Config",
    "Criterion",
    "Objective",
    "Quantization",
    "Status",
    "Trial",
    "TuneResult",
    "load_config",
    "tune",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'octavo.tune' has no attribute {name!r}; it has {__all__}")
    return getattr(importlib.import_module(_HOME[name]), name)
