"""Accuracy-driven tuning: a fast recipe that keeps a measured accuracy.

api           `tune`: arguments, checked by plan (goals, evaluators)
loop          drives a strategy (search: what it is given; auto: our own, by starts, ranking
              and trial_memory) over what may be changed (space); contest chooses the best trial
measurements  what it asks for: recalled from the history, or done as tasks by runners
inc/          Neural Compressor's files, call, strategies and metrics by name

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
    from octavo.tune.goals import Criterion as Criterion
    from octavo.tune.goals import Objective as Objective
    from octavo.tune.inc import common as common
    from octavo.tune.inc.config import Config as Config
    from octavo.tune.inc.load import load_config as load_config
    from octavo.tune.inc.quantization import Quantization as Quantization

_HOME = {
    "Config": "octavo.tune.inc.config",
    "Criterion": "octavo.tune.goals",
    "Objective": "octavo.tune.goals",
    "Quantization": "octavo.tune.inc.quantization",
    "Status": "octavo.results.tuning",
    "Trial": "octavo.results.tuning",
    "TuneResult": "octavo.results.tuning",
    "common": "octavo.tune.inc.common",
    "load_config": "octavo.tune.inc.load",
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
    "common",
    "load_config",
    "tune",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'octavo.tune' has no attribute {name!r}; it has {__all__}")
    home = importlib.import_module(_HOME[name])
    return home if name == "common" else getattr(home, name)
