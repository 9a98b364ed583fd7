"""GLUE: each task's metric, on logits [batch, classes] (sts-b: one number a pair)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from octavo.measure.metrics.arrays import NO_CLASS, class_pairs, refuse_nan_labels
from octavo.measure.metrics.classification import accuracy
from octavo.measure.metrics.definition import Entry, Option, Outputs
from octavo.measure.metrics.regression import pearson, spearman

TASKS = ("mrpc", "qqp", "qnli", "rte", "sts-b", "cola", "mnli", "wnli", "sst-2")


def glue(predictions: Sequence[Outputs], labels: Sequence[Any], task: str = "mrpc") -> float:
    """Matthews' correlation for cola, the mean of Pearson's and Spearman's for sts-b, accuracy for
    the others (for mrpc and qqp as well, as Neural Compressor has it; their F1 is the metric F1).
    """
    if task == "cola":
        return matthews(predictions, labels)
    if task == "sts-b":
        return (pearson(predictions, labels) + spearman(predictions, labels)) / 2
    return accuracy(predictions, labels)


def matthews(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """scikit-learn's Matthews correlation; 0 where one class alone is predicted, NaN for NaN."""
    from sklearn.metrics import matthews_corrcoef

    predicted, true = class_pairs(predictions, labels)
    refuse_nan_labels(true)
    if (predicted == NO_CLASS).any():
        return math.nan
    return float(matthews_corrcoef(true, predicted))


METRICS = {"GLUE": Entry(glue, options={"task": Option.one_of(*TASKS)}, libraries=("sklearn",))}
