"""Metrics by name: `metric("topk", {"k": 5})`. Names and options are Neural Compressor's, and a few
more; each family has a file, whose docstring says what it takes as predictions and labels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from octavo.errors import OptionError, did_you_mean
from octavo.measure.metrics import (
    agreement,
    classification,
    detection,
    glue,
    regression,
    segmentation,
    squad,
    texts,
)
from octavo.measure.metrics.definition import Against, Entry, Metric, Outputs
from octavo.measure.metrics.objects import of_object

__all__ = ["Against", "Metric", "Outputs", "metric", "metric_names", "of_object"]

_ENTRIES: dict[str, Entry] = {
    **agreement.METRICS,
    **classification.METRICS,
    **detection.METRICS,
    **glue.METRICS,
    **regression.METRICS,
    **segmentation.METRICS,
    **squad.METRICS,
    **texts.METRICS,
}


def metric_names() -> list[str]:
    """The names of all metrics, sorted."""
    return sorted(_ENTRIES, key=str.lower)


def metric(name: str, options: Mapping[str, Any] | object = None) -> Metric:
    """The metric called `name`, in capitals or not.

    `options` are as a YAML file has them: a mapping, None, or a single value where the metric takes
    one (`topk: 5`). MSE, RMSE and MAE with `compare_label: false` compare with the float model's
    outputs. Raises OptionError for an unknown name or option, a value out of range, or a library
    that is not installed, with the way to get it.
    """
    by_lower = {known.lower(): known for known in _ENTRIES}
    known = by_lower.get(str(name).lower())
    if known is None:
        near = did_you_mean(str(name), _ENTRIES)
        raise OptionError(f"there is no metric {name!r}.{near}")
    entry = _ENTRIES[known]
    given = entry.checked(known, options)
    entry.require_libraries(known)
    against = entry.against
    if given.get("compare_label") is False:
        against = Against.FLOAT_MODEL
    return Metric(known, entry.higher_is_better, against, partial(entry.score, **given), given)
