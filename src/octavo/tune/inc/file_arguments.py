"""What a configuration file says, as arguments of `octavo.tune.tune`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.errors import OptionError
from octavo.recipe import Layer, Recipe, Rule
from octavo.tune.evaluators import WeightedMetric
from octavo.tune.goals import Criterion
from octavo.tune.inc.config import Config
from octavo.tune.inc.metrics import metric

WORKSPACE = "octavo_tuning"
"""Where histories go by default: a folder in the current one, in it one for each file."""


def arguments(config: Config, bases: Sequence[Recipe], layers: Sequence[Layer]) -> dict[str, Any]:
    """Keyword arguments for `octavo.tune.tune`.

    `bases` are the recipes that the file adjusts, `layers` are the model's: what the file says of
    others is left out (`Config.unmatched`).
    """
    metrics = metrics_of(config)
    found: dict[str, Any] = {
        "metric": metrics or None,
        "criterion": criterion_for(config, metrics),
        "objective": tuple((part.name, part.weight) for part in config.objectives),
        "strategy": config.strategy,
        "recipe": config.recipes(bases, layers),
        "alternatives": _alternatives(config, bases[0], layers),
        "approach": config.approach,
        "timeout": config.timeout,
        "max_trials": config.max_trials,
        "seed": config.seed,
        "iteration": config.iteration,
        "batch_size": config.batch_size,
        "warmup": config.warmup,
        "calibration_samples": config.sampling_size[0],
        "workspace": config.workspace,
        "resume": bool(config.resume),
    }
    if config.performance_iteration > 1:
        found["rounds"] = config.performance_iteration
    return {key: value for key, value in found.items() if value is not None}


def criterion_for(config: Config, metrics: Sequence[WeightedMetric]) -> Criterion:
    """The file's criterion; which accuracy is better the metrics say, where the file does not."""
    if not metrics or config.direction_said:
        return config.criterion
    several = len(metrics) > 1 and metrics[0].weight is None
    return replace(config.criterion, higher_is_better=several or metrics[0].upwards)


def _alternatives(config: Config, base: Recipe, layers: Sequence[Layer]) -> list[Rule]:
    """The file's further choices, layer by layer."""
    return [
        Rule(scheme, regex=re.escape(layer.name))
        for layer in layers
        for scheme in config.allowed(layer, base)[1:]
    ]


def metrics_of(config: Config) -> tuple[WeightedMetric, ...]:
    """The file's metrics. Raises OptionError for one that is unknown or not installed."""
    if config.multi_metrics is None:
        said = config.metric
        return () if said is None else (WeightedMetric(metric(said.name, said.options)),)
    several = config.multi_metrics
    count = len(several.metrics)
    weights = several.weights or (None,) * count
    upwards = several.higher_is_better or (None,) * count
    upwards = upwards * count if len(upwards) == 1 else upwards
    return tuple(
        WeightedMetric(metric(m.name, m.options), weight, up)
        for m, weight, up in zip(several.metrics, weights, upwards, strict=True)
    )


def without_data(config: Config) -> str | None:
    """Why the file's metric cannot be used without data, and what to do; None without a metric."""
    if config.metric is None and config.multi_metrics is None:
        return None
    said = f" {config.dataset} is not shipped with Octavo;" if config.dataset else ""
    return (
        f"{config.path}: evaluation.accuracy: the metric needs data:{said} give them with --data "
        "(.npz, .jsonl, .csv, .parquet), or --evaluate module:function in the metric's place"
    )


def model_of(config: Config, given: str | Path | None) -> str | Path:
    """The model to tune: what is given beside the file, which has a name only."""
    if given is None:
        raise OptionError(
            f"{config.path} names model {config.model_name!r}, not its file: give it with --model "
            "(an ONNX file, or module:factory for PyTorch)"
        )
    return given


def workspace_of(config: Config, given: str | Path | None) -> Path:
    """The folder of the history: what is given, what the file says, or one by the file's name."""
    return Path(given or config.workspace or Path(WORKSPACE, config.path.stem))


def file_notes(config: Config, layers: Sequence[Layer]) -> tuple[str, ...]:
    """What the file says that is done otherwise, or does nothing."""
    return (*config.notes, *map(str, config.inert), *config.unmatched(layers))
