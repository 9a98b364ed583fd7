"""Metrics that users write as Neural Compressor asks: objects with `reset`, `update`, `result`."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.errors import InputDataError, OptionError
from octavo.measure.accuracy import Against, Metric, Outputs

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
