"""Accuracy-driven tuning: a fast recipe that keeps a measured accuracy.

api           `tune`: arguments, checked by plan (goals, evaluators)
loop          drives a strategy (search: what it is given; auto: our own, by starts, ranking
              and trial_memory) over what may be changed (space); contest chooses the best trial
measurements  what it asks for: recalled from the history, or done as tasks by runners
inc/          Neural Compressor's files, call, strategies and metrics by name

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.core.lazy import lazy as _lazy

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
    from octavo.tune.quantization import Quantization as Quantization

__all__, __getattr__ = _lazy(
    __name__,
    {
        "octavo.results.tuning": "Status Trial TuneResult",
        "octavo.tune.api": "tune",
        "octavo.tune.goals": "Criterion Objective",
        "octavo.tune.inc.common": "common",
        "octavo.tune.inc.config": "Config",
        "octavo.tune.inc.load": "load_config",
        "octavo.tune.quantization": "Quantization",
    },
)
