"""Metrics by name: `metric("topk", {"k": 5})`. Names and options are Neural Compressor's, and a few
more. What each takes as predictions and labels, its module says. Metrics that users write as Neural
Compressor asks, objects with `reset`, `update` and `result`, are taken too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from octavo.core.packages import need
from octavo.errors import InputDataError, OptionError, did_you_mean
from octavo.measure.accuracy import Against, Metric, Outputs, closeness
from octavo.tune.evaluators import source_digest
from octavo.tune.inc import metric_scores as scores
from octavo.tune.inc import metric_texts as texts
from octavo.tune.inc.boxes import COCO_THRESHOLDS, KEYS, POINTS, mean_ap
from octavo.tune.inc.sections import Kind, Problem, dotted, needed, plain, read
from octavo.tune.inc.values import NUMBER, POSITIVE, flag, number, one_of, text, whole


@dataclass(frozen=True)
class MetricEntry:
    """A metric by name: its function `score(predictions, labels, **options)`, and what its options
    may be. `libraries` must be installed. Options that are `inert` change nothing."""

    score: Callable[..., float]
    options: Mapping[str, Kind] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    higher_is_better: bool = True
    against: Against = Against.LABELS
    inert: frozenset[str] = frozenset()


def _overlap(value: Any) -> float | str:
    return COCO_THRESHOLDS if value == COCO_THRESHOLDS else _FRACTION(value)


_FRACTION = number(0, 1)
_THRESHOLD = {"threshold": NUMBER}
_PLACES = dict.fromkeys(("boxes", "scores", "classes"), needed(whole(0)))
_BOXES = {
    "anno_path": text,
    "map_key": one_of("a key", *KEYS),
    "output_index_mapping": {**_PLACES, "num_detections": whole(-1)},
}
_RECALL = {"iou_thrs": _overlap, "map_points": one_of("a number of recall points", *POINTS)}
_BOX_LIBRARIES = ("torch", "torchmetrics", "torchvision", "pycocotools")
_coco = partial(mean_ap, iou_thrs=COCO_THRESHOLDS, map_points=101)
_averages = one_of("an average", *scores.AVERAGES)
_tokenizers = one_of("a tokenizer", "13a", "intl", "char", "zh", "none")
_error = partial(MetricEntry, options={"compare_label": flag}, higher_is_better=False)
_texts = partial(MetricEntry, libraries=("jiwer",), higher_is_better=False)
_FLOAT = Against.FLOAT_MODEL

METRICS: dict[str, MetricEntry] = {
    # classes
    "topk": MetricEntry(scores.topk, {"k": POSITIVE}),
    "Accuracy": MetricEntry(scores.accuracy, _THRESHOLD),
    "F1": MetricEntry(scores.f1, {"average": _averages, **_THRESHOLD}, ("sklearn",)),
    "ROC": MetricEntry(
        scores.roc,  # Neural Compressor's tasks all mean the same there
        {"task": one_of("a task", "dlrm", "dien", "wide_deep")},
        ("sklearn",),
        inert=frozenset(["task"]),
    ),
    "GLUE": MetricEntry(scores.glue, {"task": one_of("a task", *scores.TASKS)}, ("sklearn",)),
    "mIOU": MetricEntry(scores.miou, {"num_classes": whole(2)}, ("torch", "torchmetrics")),
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
    "BLEU": MetricEntry(texts.bleu, {"tokenize": _tokenizers, "lowercase": flag}, ("sacrebleu",)),
    "WER": _texts(partial(texts.error_rate, function="wer")),
    "CER": _texts(partial(texts.error_rate, function="cer")),
    "SquadF1": MetricEntry(texts.squad, {"exact": flag}),
    # boxes
    "mAP": MetricEntry(mean_ap, {**_BOXES, **_RECALL}, _BOX_LIBRARIES),
    "COCOmAP": MetricEntry(_coco, _BOXES, _BOX_LIBRARIES),
    "COCOmAPv2": MetricEntry(_coco, {**_BOXES, **_RECALL}, _BOX_LIBRARIES),
    "VOCmAP": MetricEntry(mean_ap, _BOXES, _BOX_LIBRARIES),
    # the float model's outputs
    "agreement": MetricEntry(scores.agreement, _THRESHOLD, against=_FLOAT),
    "closeness": MetricEntry(closeness, against=_FLOAT),
}


def metric(name: str, options: Mapping[str, Any] | object = None) -> Metric:
    """Return the metric called `name`, in capitals or not.

    `options` are as a YAML file has them: a mapping, None, or the k of topk alone. MSE, RMSE and
    MAE with `compare_label: false` compare with the float model's outputs. Raises OptionError for
    an unknown name or option, a value that is not allowed, or a library that is not installed, with
    the way to get it.
    """
    by_lower = {known.lower(): known for known in METRICS}
    known = by_lower.get(str(name).lower())
    if known is None:
        raise OptionError(f"there is no metric {name!r}.{did_you_mean(str(name), METRICS)}")
    entry = METRICS[known]
    if known == "topk" and options is not None and not isinstance(options, Mapping):
        options = {"k": options}
    problems: list[Problem] = []
    given = plain(read(entry.options, options, (), problems))
    if problems:
        said = "; ".join(f"{dotted(at)}: {message}".removeprefix(": ") for at, message in problems)
        raise OptionError(f"metric {known}: {said}")
    need(f"metric {known} needs", *entry.libraries, error=OptionError)
    given = {key: value for key, value in given.items() if key not in entry.inert}
    against = _FLOAT if given.get("compare_label") is False else entry.against
    return Metric(known, entry.higher_is_better, against, partial(entry.score, **given), given)


# --- objects with `reset`, `update` and `result` ---


def metric_of_object(given: Any, *, tensors: bool = False) -> Metric:
    """Return the metric that `given` computes: reset(), update(predictions, labels), result().

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
    methods = ("reset", "update", "result")
    missing = [name for name in methods if not callable(getattr(given, name, None))]
    if missing:
        raise OptionError(
            f"metric is a {type(given).__name__} without {', '.join(missing)}; give a metric's "
            "name, or an object with reset(), update(predictions, labels) and result()"
        )
    on_labels = getattr(given, "compare_label", True) is not False
    return Metric(
        name,
        getattr(given, "higher_is_better", True) is not False,
        Against.LABELS if on_labels else Against.FLOAT_MODEL,
        _Updates(given, name, tensors),
        {"source": source_digest(given)},
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
    """Return `value` with arrays of numbers as PyTorch's tensors."""
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(one) for one in value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        import torch

        return torch.from_numpy(value.copy())
    return value
