"""Neural Compressor's Python call: `Quantization('conf.yaml')`, `.fit()`, `.save(path)`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.errors import OptionError, did_you_mean
from octavo.files.staging import write_text
from octavo.front_ends import target_of
from octavo.measure.data import Dataset
from octavo.recipe import dump_recipe, preset
from octavo.recipe.target import Target
from octavo.results.tuning import Approach, TuneResult
from octavo.tune.api import tune
from octavo.tune.config.load import load_config
from octavo.tune.config.result import Config
from octavo.tune.evaluators import is_torch, weighted
from octavo.tune.from_config import arguments, criterion_for, model_of

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
            given["metric"] = metrics = weighted(self.metric, tensors=is_torch(target))
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
