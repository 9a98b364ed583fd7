"""Accuracy, topk, F1 and ROC: how many classes are right.

Classes come out of the first output: the largest of the scores [batch, classes]; of one score a
sample, [batch] or [batch, 1], class 1 above `threshold` (0.5: probabilities; give 0 for logits);
integers, booleans and texts as they are. Labels are classes [batch] or [batch, 1], or one-hot rows.
Tokens and pixels count as samples where scores and labels have more axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError, listed
from octavo.measure.metrics.arrays import (
    NO_CLASS,
    Array,
    batches,
    class_pairs,
    label_array,
    label_classes,
    misfit,
    refuse_nan_labels,
)
from octavo.measure.metrics.definition import Entry, Option, Outputs, number, whole

AVERAGES = ("binary", "micro", "macro", "weighted")


def accuracy(
    predictions: Sequence[Outputs], labels: Sequence[Any], threshold: float = 0.5
) -> float:
    """The share of samples whose class is right; scores that hold NaN are wrong."""
    predicted, true = class_pairs(predictions, labels, threshold)
    return float(np.mean(predicted == true))


def topk(predictions: Sequence[Outputs], labels: Sequence[Any], k: int = 1) -> float:
    """The share of samples whose true class is among the `k` largest scores [batch, classes].

    Of equal scores the first come first; rows that hold NaN are wrong. Integers are predicted
    classes, for k = 1 only.
    """
    if k == 1 and all(s.dtype.kind in "iu" for s, _ in batches(predictions, labels)):
        return accuracy(predictions, labels)
    hits = [_hits(s, label, i, k) for i, (s, label) in enumerate(batches(predictions, labels))]
    return float(np.mean(np.concatenate(hits)))


def _hits(scores: Array, label: Any, batch: int, k: int) -> Array:
    true = label_classes(label, batch, scores)
    if scores.dtype.kind != "f" or scores.ndim != 2 or true.shape != scores.shape[:1]:
        wanted = "topk takes scores [batch, classes] and labels [batch]"
        raise misfit(batch, scores, label_array(label, batch), wanted)
    count = scores.shape[1]
    if k > count:
        raise InputDataError(f"topk: k is {k}, and the model tells {count} classes apart")
    outside = [c for c in true.tolist() if not (isinstance(c, (int, float)) and 0 <= c < count)]
    if outside:
        raise InputDataError(
            f"batch {batch}: the label {outside[0]!r} is no class from 0 to {count - 1}, of which "
            f"the model gives scores {list(scores.shape)}"
        )
    index = true.astype(np.int64)[:, None]
    own = np.take_along_axis(scores, index, axis=1)
    before = (scores > own) | ((scores == own) & (np.arange(count) < index))
    return np.asarray((before.sum(axis=1) < k) & ~np.isnan(scores).any(axis=1))


def f1(
    predictions: Sequence[Outputs],
    labels: Sequence[Any],
    average: str = "binary",
    threshold: float = 0.5,
) -> float:
    """scikit-learn's F1 score, of class 1 (`average: binary`) or averaged over classes.

    NaN where a score is NaN.
    """
    from sklearn.metrics import f1_score

    predicted, true = class_pairs(predictions, labels, threshold)
    refuse_nan_labels(true)
    if predicted.dtype.kind not in "OUS" and (predicted == NO_CLASS).any():
        return math.nan
    known = set(predicted.tolist()) | set(true.tolist())
    if average == "binary" and not known <= {0, 1}:
        shown = listed(sorted(map(repr, known)), 5)
        raise InputDataError(
            f"F1 of the classes 0 and 1, and these are {shown}: for others give `average`, one of "
            f"{', '.join(AVERAGES[1:])}"
        )
    return float(f1_score(true, predicted, average=average, zero_division=0.0))


def roc(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """The area under the ROC curve (scikit-learn's) of two classes.

    Scores are [batch] or [batch, 1], or [batch, 2], whose difference is taken; NaN where one is.
    """
    from sklearn.metrics import roc_auc_score

    scores, true = [], []
    for i, (output, label) in enumerate(batches(predictions, labels)):
        expected = label_classes(label, i, output)
        columns = output[:, None] if output.ndim == 1 else output
        fits = columns.ndim == 2 and columns.shape[1] in (1, 2) and output.dtype.kind in "fiub"
        if not fits or expected.shape != columns.shape[:1]:
            wanted = "ROC takes scores [batch], [batch, 1] or [batch, 2] and labels [batch]"
            raise misfit(i, output, label_array(label, i), wanted)
        columns = columns.astype(np.float64)
        scores.append(columns[:, -1] - (columns[:, 0] if columns.shape[1] == 2 else 0.0))
        true.append(expected)
    all_scores, all_true = np.concatenate(scores), np.concatenate(true)
    if set(all_true.tolist()) != {0, 1}:
        shown = listed(sorted(map(repr, set(all_true.tolist()))), 5)
        raise InputDataError(f"ROC needs labels 0 and 1, both of them; the data has {shown}")
    if np.isnan(all_scores).any():
        return math.nan
    return float(roc_auc_score(all_true, all_scores))


_THRESHOLD = {"threshold": number(-math.inf, math.inf)}
METRICS = {
    "topk": Entry(topk, options={"k": whole(1)}, bare="k"),
    "Accuracy": Entry(accuracy, options=_THRESHOLD),
    "F1": Entry(
        f1, options={"average": Option.one_of(*AVERAGES), **_THRESHOLD}, libraries=("sklearn",)
    ),
    # Neural Compressor's tasks all mean the same there.
    "ROC": Entry(
        roc,
        options={"task": Option.one_of("dlrm", "dien", "wide_deep")},
        inert=frozenset(["task"]),
        libraries=("sklearn",),
    ),
}
