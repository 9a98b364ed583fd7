"""The arguments of `tune` that a configuration file says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import OptionError
from octavo.recipe import Recipe
from octavo.tune.criterion import Criterion

if TYPE_CHECKING:
    from octavo.tune.config import Config


def arguments(config: Config, base: Recipe) -> dict[str, Any]:
    """Keyword arguments for `octavo.tune.tune`; `base` is the recipe that the file adjusts.

    `criterion` is a bare number (relative) or a Criterion as the file has it.
    """
    found: dict[str, Any] = {
        "criterion": config.criterion,
        "objective": tuple((part.name, part.weight) for part in config.objectives),
        "strategy": config.strategy,
        "recipe": config.recipe(base),
        "alternatives": config.alternatives(base),
        "approach": config.approach,
        "timeout": config.timeout,
        "max_trials": config.max_trials,
        "seed": config.seed,
        "iteration": config.iteration,
        "warmup": config.warmup,
        "workspace": config.workspace,
        "resume": bool(config.resume),
    }
    if config.multi_metrics:
        found["metric"] = [((m.name, m.options), m.weight) for m in config.multi_metrics]
    elif config.metric is not None:
        found["metric"] = (config.metric.name, config.metric.options)
    if config.front_end != "torch":
        found["quant_format"] = config.quant_format
    return {key: value for key, value in found.items() if value is not None}


def without_labels(config: Config, evaluate: Any, data: Any) -> str | None:
    """Why the file's metric cannot be used, where neither data nor evaluate are given."""
    if evaluate is not None or data is not None or not (config.metric or config.multi_metrics):
        return None
    said = f" {config.dataset} is not shipped with Octavo;" if config.dataset else ""
    return (
        f"{config.path}: evaluation.accuracy.metric needs data:{said} give them with --data "
        "(.npz, .jsonl, .csv, .parquet), or --evaluate module:function in its place"
    )


def relative_or_given(criterion: Criterion | float) -> Criterion:
    """A criterion as such."""
    return criterion if isinstance(criterion, Criterion) else Criterion(relative=criterion)


def model_of(config: Config, given: str | Path | None) -> str | Path:
    """The model to tune: what is given beside the file, which has a name only."""
    if given is None:
        raise OptionError(
            f"{config.path} names model {config.model_name!r}, not its file: give it with --model "
            "(an ONNX file, or module:factory for PyTorch)"
        )
    return given
