"""Metrics by name: `metric("topk", {"k": 5})`. Names and options are Neural Compressor's, and a few
more. What each takes as predictions and labels, its module says. Metrics that users write as Neural
Compressor asks, objects with `reset`, `update` and `result`, are taken too."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from octavo.core.packages import need
from octavo.errors import InputDataError, OptionError, did_you_mean
from octavo.measure.accuracy import Against, Metric, Outputs, closeness
from octavo.tune.inc import metric_scores as scores
from octavo.tune.inc.boxes import COCO_THRESHOLDS, KEYS, POINTS, mean_ap
from octavo.tune.inc.squad import squad


@dataclass(frozen=True)
class Option:
    """One option: whether a value is `valid`, and what is `allowed`, in words."""

    valid: Callable[[Any], bool]
    allowed: str

    @classmethod
    def one_of(cls, *names: str) -> Option:
        """One of the words `names`."""
        return cls(lambda value: isinstance(value, str) and value in names, ", ".join(names))


@dataclass(frozen=True)
class MetricEntry:
    """A metric by name: its function `score(predictions, labels, **options)` and its options.

    A value that is no mapping is the option `bare` (`topk: 5`). `libraries` must be installed.
    `inert` options are checked and change nothing.
    """

    score: Callable[..., float]
    higher_is_better: bool = True
    against: Against = Against.LABELS
    options: Mapping[str, Option] = field(default_factory=dict)
    inert: frozenset[str] = frozenset()
    bare: str = ""
    libraries: tuple[str, ...] = ()

    def checked(self, name: str, options: object) -> dict[str, Any]:
        """`options` as keyword arguments; OptionError for what is unknown or out of range."""
        if options is None:
            return {}
        if not isinstance(options, Mapping):
            if not self.bare:
                known = ", ".join(self.options) or "it has none"
                raise OptionError(
                    f"metric {name} takes a mapping of options ({known}), not {options!r}"
                )
            options = {self.bare: options}
        for key, value in options.items():
            if key not in self.options:
                raise OptionError(
                    f"metric {name} has no option {key!r}.{did_you_mean(str(key), self.options)}"
                )
            if not self.options[key].valid(value):
                raise OptionError(
                    f"metric {name}: {key} is {value!r}; allowed: {self.options[key].allowed}"
                )
        return {key: value for key, value in options.items() if key not in self.inert}

    def require_libraries(self, name: str) -> None:
        """Raises OptionError with the way to get what is not installed."""
        need(f"metric {name} needs", *self.libraries, error=OptionError)


def whole(least: int) -> Option:
    """A whole number from `least`."""

    def valid(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return Option(valid, f"a whole number, {least} or more")


def number(low: float, high: float) -> Option:
    """A finite number from `low` to `high`."""

    def valid(value: Any) -> bool:
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
        )

    return Option(valid, f"a number from {low:g} to {high:g}")


BOOLEAN = Option(lambda value: isinstance(value, bool), "true or false")


def _overlap(value: Any) -> bool:
    return value == COCO_THRESHOLDS or (isinstance(value, float) and 0 <= value <= 1)


def _order(value: Any) -> bool:
    needed = {"boxes", "scores", "classes"}
    return (
        isinstance(value, Mapping)
        and needed <= set(value) <= {*needed, "num_detections"}
        and all(whole(-1).valid(v) for v in value.values())
        and all(value[key] >= 0 for key in needed)
    )


_THRESHOLD = {"threshold": number(-math.inf, math.inf)}
_COMPARE = {"compare_label": BOOLEAN}
_BOXES = {
    "anno_path": Option(lambda value: isinstance(value, str), "the path of a YAML file"),
    "map_key": Option.one_of(*KEYS),
    "output_index_mapping": Option(_order, "places of boxes, scores and classes"),
}
_RECALL = {
    "iou_thrs": Option(_overlap, f"a fraction from 0.0 to 1.0, or {COCO_THRESHOLDS}"),
    "map_points": Option(lambda value: value in POINTS and type(value) is int, "0, 11, 101"),
}
_BOX_LIBRARIES = ("torch", "torchmetrics", "torchvision", "pycocotools")
_coco = partial(mean_ap, iou_thrs=COCO_THRESHOLDS, map_points=101)


def _error(
    score: Callable[..., float], options: Mapping[str, Option] = _COMPARE, *libraries: str
) -> MetricEntry:
    return MetricEntry(score, higher_is_better=False, options=options, libraries=libraries)


METRICS: dict[str, MetricEntry] = {
    # classes
    "topk": MetricEntry(scores.topk, options={"k": whole(1)}, bare="k"),
    "Accuracy": MetricEntry(scores.accuracy, options=_THRESHOLD),
    "F1": MetricEntry(
        scores.f1,
        options={"average": Option.one_of(*scores.AVERAGES), **_THRESHOLD},
        libraries=("sklearn",),
    ),
    "ROC": MetricEntry(
        scores.roc,  # Neural Compressor's tasks all mean the same there
        options={"task": Option.one_of("dlrm", "dien", "wide_deep")},
        inert=frozenset(["task"]),
        libraries=("sklearn",),
    ),
    "GLUE": MetricEntry(
        scores.glue, options={"task": Option.one_of(*scores.TASKS)}, libraries=("sklearn",)
    ),
    "mIOU": MetricEntry(
        scores.miou, options={"num_classes": whole(2)}, libraries=("torch", "torchmetrics")
    ),
    # numbers
    "MSE": _error(partial(scores.mean_error, of=np.square)),
    "RMSE": _error(scores.rmse),
    "MAE": _error(partial(scores.mean_error, of=np.abs)),
    "Loss": MetricEntry(scores.loss, higher_is_better=False, against=Against.NOTHING),
    "Pearson": MetricEntry(partial(scores.correlation, function="pearsonr"), libraries=("scipy",)),
    "Spearman": MetricEntry(
        partial(scores.correlation, function="spearmanr"), libraries=("scipy",)
    ),
    # texts
    "BLEU": MetricEntry(
        scores.bleu,
        options={
            "tokenize": Option.one_of("13a", "intl", "char", "zh", "none"),
            "lowercase": BOOLEAN,
        },
        libraries=("sacrebleu",),
    ),
    "WER": _error(partial(scores.error_rate, function="wer"), {}, "jiwer"),
    "CER": _error(partial(scores.error_rate, function="cer"), {}, "jiwer"),
    "SquadF1": MetricEntry(squad, options={"exact": BOOLEAN}),
    # boxes
    "mAP": MetricEntry(mean_ap, options={**_BOXES, **_RECALL}, libraries=_BOX_LIBRARIES),
    "COCOmAP": MetricEntry(_coco, options=_BOXES, libraries=_BOX_LIBRARIES),
    "COCOmAPv2": MetricEntry(_coco, options={**_BOXES, **_RECALL}, libraries=_BOX_LIBRARIES),
    "VOCmAP": MetricEntry(mean_ap, options=_BOXES, libraries=_BOX_LIBRARIES),
    # the float model's outputs
    "agreement": MetricEntry(scores.agreement, against=Against.FLOAT_MODEL, options=_THRESHOLD),
    "closeness": MetricEntry(closeness, against=Against.FLOAT_MODEL),
}


def metric_names() -> list[str]:
    """The names of all metrics, sorted."""
    return sorted(METRICS, key=str.lower)


def metric(name: str, options: Mapping[str, Any] | object = None) -> Metric:
    """The metric called `name`, in capitals or not.

    `options` are as a YAML file has them: a mapping, None, or a single value where the metric takes
    one (`topk: 5`). MSE, RMSE and MAE with `compare_label: false` compare with the float model's
    outputs. Raises OptionError for an unknown name or option, a value out of range, or a library
    that is not installed, with the way to get it.
    """
    by_lower = {known.lower(): known for known in METRICS}
    known = by_lower.get(str(name).lower())
    if known is None:
        near = did_you_mean(str(name), METRICS)
        raise OptionError(f"there is no metric {name!r}.{near}")
    entry = METRICS[known]
    given = entry.checked(known, options)
    entry.require_libraries(known)
    against = entry.against
    if given.get("compare_label") is False:
        against = Against.FLOAT_MODEL
    return Metric(known, entry.higher_is_better, against, partial(entry.score, **given), given)


# --- objects with `reset`, `update` and `result` ---


METHODS = ("reset", "update", "result")


def metric_of_object(given: Any, *, tensors: bool = False) -> Metric:
    """The metric that `given` computes by reset(), update(predictions, labels) a batch, result().

    Predictions are the list of the model's outputs, as ONNX Runtime gives them; with `tensors`, as
    a PyTorch module returns them: tensors, one alone where there is one. More is better unless
    `higher_is_better` of the object is False; `compare_label` = False has it compare with the float
    model's outputs. Neural Compressor's `Metric(metric_cls, name, **kwargs)` is taken too. Raises
    OptionError for what has not these methods.
    """
    name = type(given).__name__
    if hasattr(given, "metric_cls"):
        name, given = str(given.name), given.metric_cls(**given.kwargs)
    if isinstance(given, type):
        raise OptionError(f"metric {given.__name__} is a class; give an object: {given.__name__}()")
    missing = [method for method in METHODS if not callable(getattr(given, method, None))]
    if missing:
        raise OptionError(
            f"metric is a {name} without {', '.join(missing)}; give a metric's name, or an object "
            "with reset(), update(predictions, labels) and result()"
        )
    on_labels = getattr(given, "compare_label", True) is not False
    return Metric(
        name,
        getattr(given, "higher_is_better", True) is not False,
        Against.LABELS if on_labels else Against.FLOAT_MODEL,
        _Updates(given, name, tensors),
        {"source": _source(type(given))},
    )


@dataclass(frozen=True)
class _Updates:
    """Feeds an object batch by batch."""

    metric: Any
    name: str
    tensors: bool

    def __call__(self, predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
        self.metric.reset()
        for outputs, label in zip(predictions, labels, strict=True):
            if self.tensors:
                self.metric.update(_returned(outputs), _tensors(label))
            else:
                self.metric.update(list(outputs), label)
        found = self.metric.result()
        try:
            return float(found)
        except (TypeError, ValueError):
            raise InputDataError(
                f"metric {self.name}: result() returned {found!r:.80} ({type(found).__name__}); "
                "needs a number"
            ) from None


def _returned(outputs: Outputs) -> Any:
    found = _tensors(list(outputs))
    return found[0] if len(found) == 1 else tuple(found)


def _tensors(value: Any) -> Any:
    """With arrays of numbers as PyTorch's tensors."""
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(one) for one in value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        import torch

        return torch.from_numpy(value.copy())
    return value


def _source(kind: type) -> str:
    """A digest of the class's text: another text may measure otherwise."""
    try:
        return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()[:24]
    except (OSError, TypeError):
        return ""
