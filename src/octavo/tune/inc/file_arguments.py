"""What a configuration file says, as arguments of `octavo.tune.tune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.errors import OptionError
from octavo.recipe import Layer, Recipe
from octavo.tune.evaluators import WeightedMetric
from octavo.tune.goals import Criterion
from octavo.tune.inc.config import Config
from octavo.tune.inc.metrics import metric

WORKSPACE = "octavo_tuning"
"""Where histories go by default: a folder in the current one, in it one for each file."""


def arguments(config: Config, bases: Sequence[Recipe], layers: Sequence[Layer]) -> dict[str, Any]:
    """Return keyword arguments for `octavo.tune.tune`.

    `bases` are the recipes that the file adjusts, `layers` are the model's: what the file says of
    others is left out. Raises OptionError for a metric whose library is not installed.
    """
    metrics = tuple(
        WeightedMetric(metric(said.name, said.options), said.weight, said.higher_is_better)
        for said in config.metrics
    )
    found: dict[str, Any] = {
        "metric": metrics or None,
        "criterion": criterion_for(config, metrics),
        "objective": config.objectives,
        "recipe": config.recipes(bases, layers),
        "alternatives": config.alternatives(bases[0], layers),
        "calibration_samples": config.sampling_size[0],
        "resume": bool(config.resume),
    }
    same = "strategy approach timeout max_trials seed iteration batch_size warmup workspace".split()
    found |= {name: getattr(config, name) for name in same}
    if config.performance_iteration > 1:
        found["rounds"] = config.performance_iteration
    return {key: value for key, value in found.items() if value is not None}


def criterion_for(config: Config, metrics: Sequence[WeightedMetric]) -> Criterion:
    """Return the file's criterion; the metrics say which accuracy is better, where it does not."""
    if not metrics or config.direction_said:
        return config.criterion
    several = len(metrics) > 1 and metrics[0].weight is None
    return replace(config.criterion, higher_is_better=several or metrics[0].upwards)


def without_data(config: Config) -> str | None:
    """Return why the file's metric cannot be used without data, and what to do; None without a
    metric."""
    if not config.metrics:
        return None
    said = f" {config.dataset} is not shipped with Octavo;" if config.dataset else ""
    return (
        f"{config.path}: evaluation.accuracy: the metric needs data:{said} give them with --data "
        "(.npz, .jsonl, .csv, .parquet), or --evaluate module:function in the metric's place"
    )


def model_of(config: Config, given: str | Path | None) -> str | Path:
    """Return the model to tune: what is given beside the file, which has a name only."""
    if given is None:
        raise OptionError(
            f"{config.path} names model {config.model_name!r}, not its file: give it with --model "
            "(an ONNX file, or module:factory for PyTorch)"
        )
    return given


def workspace_of(config: Config, given: str | Path | None) -> Path:
    """Return the folder of the history: what is given, what the file says, or one by the file's
    name."""
    return Path(given or config.workspace or Path(WORKSPACE, config.path.stem))
