"""Neural Compressor's Python call: `Quantization('conf.yaml')`, `.fit()`, `.save(path)`, and what a
configuration file says as arguments of `octavo.tune.tune`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.errors import OptionError, did_you_mean
from octavo.files.staging import write_text
from octavo.front_ends import target_of
from octavo.measure.data import Dataset
from octavo.recipe import Layer, Recipe, Rule, dump_recipe, preset
from octavo.recipe.target import Target
from octavo.results.tuning import Approach, TuneResult
from octavo.tune.api import tune
from octavo.tune.arguments import is_torch, weighted_metrics
from octavo.tune.evaluators import WeightedMetric
from octavo.tune.goals import Criterion
from octavo.tune.inc.config import Config
from octavo.tune.inc.load import load_config
from octavo.tune.inc.metrics import metric

_ATTRIBUTES = ("model", "eval_func", "calib_dataloader", "eval_dataloader", "metric")


class Quantization:
    """A search that a Neural Compressor 1.x file configures.

    Set `model` (an ONNX file or ModelProto, or a torch.nn.Module), and `eval_func` (takes the model
    and returns its accuracy) or `eval_dataloader` with the file's metric, or with `metric` (a name,
    or an object with reset, update and result); `calib_dataloader` for static quantization. Then
    `fit()`. Without eval_func and eval_dataloader outputs are compared
    with the float model's.
    """

    def __init__(self, conf: str | Path | Config, *, approach: str | None = None) -> None:
        if isinstance(conf, Config) and approach is not None:
            raise OptionError("approach: conf is loaded already; give it to load_config")
        self.config = conf if isinstance(conf, Config) else load_config(conf, approach=approach)
        self.model: Any = None
        self.eval_func: Callable[[Any], Any] | None = None
        self.calib_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.metric: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (*_ATTRIBUTES, "config"):
            raise OptionError(
                f"Quantization has no attribute {name!r}.{did_you_mean(name, _ATTRIBUTES)}"
            )
        super().__setattr__(name, value)

    def __call__(self) -> QuantizedModel:
        """The same as `fit()`."""
        return self.fit()

    def fit(self) -> QuantizedModel:
        """Searches; never returns None. Raises what `octavo.tune.tune` raises."""
        if self.metric is not None and (self.eval_func or self.eval_dataloader is None):
            what = "needs eval_dataloader" if not self.eval_func else "stands beside eval_func"
            raise OptionError(
                f"Quantization.metric {what}: set eval_dataloader with it, or eval_func alone"
            )
        base = preset("int8")
        target = target_of(model_of(self.config, self.model), quant_format=self.config.quant_format)
        layers = [decision.layer for decision in target.decisions(base)]
        given = arguments(self.config, base, layers)
        if self.metric is not None:
            given["metric"] = metrics = weighted_metrics(self.metric, tensors=is_torch(target))
            given["criterion"] = criterion_for(self.config, metrics)
        if self.eval_func is not None or self.eval_dataloader is None:
            given.pop("metric", None)
        result = tune(
            target,
            self.eval_func,
            data=None if self.eval_func is not None else self.eval_dataloader,
            calibration=self.calib_dataloader,
            **given,
        )
        samples = self.config.sampling_size[0]
        return QuantizedModel(result, target, self.calib_dataloader, samples)


class QuantizedModel:
    """What a search found: `result`, and the best model, which `save` writes."""

    def __init__(
        self, result: TuneResult, target: Target, calibration: Any, sampling_size: int
    ) -> None:
        self.result = result
        self._target, self._calibration, self._size = target, calibration, sampling_size

    @property
    def model(self) -> Any:
        """The best model, opened: an onnxruntime.InferenceSession or an nn.Module."""
        recipe = self.result.best.recipe
        if recipe is None:
            return self._target.float_model().model
        return self._target.build(recipe, self._feeds()).model

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Writes the best model to `path`, or into the folder `path` as `best_model` with its
        recipe as `best_recipe.yaml`; gives the model's path.

        Raises OptionError where no recipe met the criterion, unless `force`.
        """
        best, path = self.result.best, Path(path)
        if best.recipe is None or not (best.meets or force):
            more = "" if best.recipe is None else "; save(path, force=True) writes the nearest one"
            raise OptionError(
                f"{self.result.status.value}: no recipe met the criterion "
                f"({self.result.criterion}), so that nothing is written{more}"
            )
        suffix = self._target.output_suffix
        if path.suffix.lower() == suffix:
            self._target.save(best.recipe, path, self._feeds())
            return path
        path.mkdir(parents=True, exist_ok=True)
        out = path / f"best_model{suffix}"
        self._target.save(best.recipe, out, self._feeds())
        if best.approach is Approach.DYNAMIC:
            write_text(path / "best_recipe.yaml", dump_recipe(best.recipe))
        return out

    def _feeds(self) -> Any:
        if self.result.best.approach is Approach.DYNAMIC:
            return None
        return Dataset.of(self._calibration).feeds(self._size)

    def __str__(self) -> str:
        return str(self.result)


def arguments(config: Config, base: Recipe, layers: Sequence[Layer]) -> dict[str, Any]:
    """Keyword arguments for `octavo.tune.tune`.

    `base` is the recipe that the file adjusts, `layers` are the model's: what the file says of
    others is left out (`Config.unmatched`).
    """
    metrics = metrics_of(config)
    found: dict[str, Any] = {
        "metric": metrics or None,
        "criterion": criterion_for(config, metrics),
        "objective": tuple((part.name, part.weight) for part in config.objectives),
        "strategy": config.strategy,
        "recipe": config.recipe(base, layers),
        "alternatives": _alternatives(config, base, layers),
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
