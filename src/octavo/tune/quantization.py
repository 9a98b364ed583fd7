"""Neural Compressor's Python call: `Quantization('conf.yaml')`, `.fit()`, `.save(path)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.core.packages import need
from octavo.errors import OptionError, did_you_mean
from octavo.files.staging import Staging, write_text
from octavo.front_ends import target_of
from octavo.measure.data import Dataset
from octavo.recipe import Recipe, dump_recipe
from octavo.results.target import Target
from octavo.results.tuning import Approach, TuneResult
from octavo.tune.api import tune
from octavo.tune.arguments import Shapes, checked_recipes, is_torch, weighted_metrics
from octavo.tune.inc.config import Config
from octavo.tune.inc.file_arguments import arguments, criterion_for, model_of, workspace_of
from octavo.tune.inc.load import load_config
from octavo.tune.search import Logged, View

_ATTRIBUTES = ("model", "eval_func", "calib_dataloader", "eval_dataloader", "metric")
_OWN = ("config", "_of_model", "_of_search", "_recipes", "_report")


class Quantization:
    """A search that a Neural Compressor 1.x file configures.

    Set `model` (an ONNX file or ModelProto, or a torch.nn.Module), and `eval_func` (takes the model
    and returns its accuracy) or `eval_dataloader` with the file's metric, or with `metric` (a name,
    or an object with reset, update and result); `calib_dataloader` for static quantization. Then
    `fit()`. Without eval_func and eval_dataloader outputs are compared
    with the float model's.

    `approach` takes the place of the file's: see `load_config`. `target`, `cpu`, `custom_ops` and
    `threads` are of ONNX models, as of `octavo.onnx.quantize_dynamic`, `example_inputs` of PyTorch
    models; `recipe`, `shapes` and `workers` are as of `octavo.tune.tune`. `workspace` is the folder
    of the history, by default the file's tuning.workspace.path, or the file's name in
    `octavo_tuning` in the current folder; `resume` goes on with the search whose history is there.
    `report` is an .html file, for a page about the search, and `view` who watches
    (`octavo.tune.search.View`), by default the logger `octavo.tune`.
    """

    def __init__(
        self,
        conf: str | Path | Config,
        *,
        approach: str | None = None,
        target: str | None = None,
        cpu: str | None = None,
        threads: int | None = None,
        custom_ops: Any = None,
        example_inputs: Any = None,
        recipe: str | Path | Recipe | None = None,
        shapes: Shapes | Sequence[Shapes] = (),
        workers: int | None = None,
        workspace: str | Path | None = None,
        resume: bool = False,
        report: str | Path | None = None,
        view: View | None = None,
    ) -> None:
        if isinstance(conf, Config) and approach is not None:
            raise OptionError("approach: conf is loaded already; give it to load_config")
        self.config = config = (
            conf if isinstance(conf, Config) else load_config(conf, approach=approach)
        )
        native = target == "native"  # it has one format, whatever the file says
        self._of_model: dict[str, Any] = {
            "target": target,
            "cpu": cpu,
            "quant_format": "qoperator" if native and config.quant_format else config.quant_format,
            "threads": threads,
            "custom_ops": custom_ops,
            "example_inputs": example_inputs,
        }
        self._of_search: dict[str, Any] = {
            "shapes": shapes,
            "workers": workers,
            "workspace": workspace_of(config, workspace),
            "resume": resume or bool(config.resume),
            "view": view or Logged(),
        }
        self._recipes = checked_recipes(recipe)
        self._report = None if report is None else _checked_page(Path(report))
        self.model: Any = None
        self.eval_func: Callable[[Any], Any] | None = None
        self.calib_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.metric: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (*_ATTRIBUTES, *_OWN):
            raise OptionError(
                f"Quantization has no attribute {name!r}.{did_you_mean(name, _ATTRIBUTES)}"
            )
        super().__setattr__(name, value)

    def __call__(self) -> QuantizedModel:
        """Do the same as `fit()`."""
        return self.fit()

    def fit(self) -> QuantizedModel:
        """Search; never return None. Raises what `octavo.tune.tune` raises."""
        if self.metric is not None and (self.eval_func or self.eval_dataloader is None):
            what = "needs eval_dataloader" if not self.eval_func else "stands beside eval_func"
            raise OptionError(
                f"Quantization.metric {what}: set eval_dataloader with it, or eval_func alone"
            )
        target = target_of(model_of(self.config, self.model), **self._of_model)
        layers = [decision.layer for decision in target.decisions(self._recipes[0])]
        notes, view = self.config.all_notes(layers), self._of_search["view"]
        given = arguments(self.config, self._recipes, layers) | self._of_search
        if self.metric is not None:
            given["metric"] = metrics = weighted_metrics(self.metric, tensors=is_torch(target))
            given["criterion"] = criterion_for(self.config, metrics)
        if self.eval_func is not None or self.eval_dataloader is None:
            given.pop("metric", None)
        for note in notes:
            view.note(note)
        result = tune(
            target,
            self.eval_func,
            data=None if self.eval_func is not None else self.eval_dataloader,
            calibration=self.calib_dataloader,
            **given,
        )
        kept = f"every trial is kept in {given['workspace']}"
        result = replace(result, notes=(*notes, *result.notes, kept))
        if self._report is not None:
            from octavo.report.html import tuning_html, write_html

            write_html(tuning_html(result), self._report)
        samples = self.config.sampling_size[0]
        return QuantizedModel(result, target, self.calib_dataloader, samples)


def _checked_page(path: Path) -> Path:
    """Check a page's place before the search, and return it. Raises OptionError, OutputError."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"report {path}: end the name with .html or .htm")
    need("report needs", "jinja2", error=OptionError)
    Staging(path)
    return path


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
        """Write the best model to the file or into the folder `path`; return the model's path.

        In a folder the model is `best_model`, with its recipe as `best_recipe.yaml`. Raises
        OptionError where no recipe met the criterion, unless `force`.
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
