"""Metrics of classes, pixels and numbers, most of them by a library.

Classes come out of the first output: the largest of the scores [batch, classes]; of one score a
sample, [batch] or [batch, 1], class 1 above `threshold` (0.5: probabilities; give 0 for logits);
integers, booleans and texts as they are. Labels are classes [batch] or [batch, 1], or one-hot rows.
Tokens and pixels count as samples where scores and labels have more axes.

Numbers are the first output's, and labels are as many.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError, listed
from octavo.measure.accuracy import Array, Outputs, batches, output_pairs
from octavo.tune.inc.metric_pairs import (
    NO_CLASS,
    class_axis,
    class_pairs,
    label_array,
    label_classes,
    mismatch,
    number_pairs,
    predicted_classes,
    refuse_nan_labels,
)

AVERAGES = ("binary", "micro", "macro", "weighted")
TASKS = ("mrpc", "qqp", "qnli", "rte", "sts-b", "cola", "mnli", "wnli", "sst-2")

# --- classes ---


def accuracy(
    predictions: Sequence[Outputs], labels: Sequence[Any], threshold: float = 0.5
) -> float:
    """Return the share of samples whose class is right; scores that hold NaN are wrong."""
    predicted, true = class_pairs(predictions, labels, threshold)
    return float(np.mean(predicted == true))


def topk(predictions: Sequence[Outputs], labels: Sequence[Any], k: int = 1) -> float:
    """Return the share of samples whose true class is among the `k` largest scores.

    Scores are [batch, classes]. Of equal scores the first come first; rows that hold NaN are wrong.
    Integers are predicted classes, for k = 1 only.
    """
    if k == 1 and all(s.dtype.kind in "iu" for s, _ in batches(predictions, labels)):
        return accuracy(predictions, labels)
    hits = []
    for batch, (scores, label) in enumerate(batches(predictions, labels)):
        true = label_classes(label, batch, scores)
        if scores.dtype.kind != "f" or scores.ndim != 2 or true.shape != scores.shape[:1]:
            wanted = "topk takes scores [batch, classes] and labels [batch]"
            raise mismatch(batch, scores, label_array(label, batch), wanted)
        count = scores.shape[1]
        if k > count:
            raise InputDataError(f"topk: k is {k}, and the model tells {count} classes apart")
        for one in true.tolist():
            if not (isinstance(one, (int, float)) and 0 <= one < count):
                raise InputDataError(
                    f"batch {batch}: the label {one!r} is no class from 0 to {count - 1}, of which "
                    f"the model gives scores {list(scores.shape)}"
                )
        index = true.astype(np.int64)[:, None]
        own = np.take_along_axis(scores, index, axis=1)
        before = (scores > own) | ((scores == own) & (np.arange(count) < index))
        hits.append((before.sum(axis=1) < k) & ~np.isnan(scores).any(axis=1))
    return float(np.mean(np.concatenate(hits)))


def f1(
    predictions: Sequence[Outputs],
    labels: Sequence[Any],
    average: str = "binary",
    threshold: float = 0.5,
) -> float:
    """Return scikit-learn's F1 score, of class 1 (`average: binary`) or averaged over classes.

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
    """Return the area under the ROC curve (scikit-learn's) of two classes.

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
            raise mismatch(i, output, label_array(label, i), wanted)
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


def agreement(
    predictions: Sequence[Outputs], references: Sequence[Outputs], threshold: float = 0.5
) -> float:
    """Return the share of samples whose class is the one that the float model gives.

    Classes are those of `Accuracy`; the class axis is the second of images ([B, C, H, W]), else the
    last. Where both give NaN they agree.
    """
    first = [outputs[:1] for outputs in predictions]
    theirs = [() if outputs is None else outputs[:1] for outputs in references]
    same = []
    for pair in output_pairs(first, theirs):
        a, b = (predicted_classes(one, class_axis(pair[1]), threshold) for one in pair)
        same.append((a == b).ravel())
    equal = np.concatenate(same)
    if equal.size == 0:
        raise InputDataError("there are no samples to compare: the first output is empty")
    return float(np.mean(equal))


def glue(predictions: Sequence[Outputs], labels: Sequence[Any], task: str = "mrpc") -> float:
    """Return Matthews' correlation for cola, the mean of Pearson's and Spearman's for sts-b, and
    accuracy for the others.

    That is so for mrpc and qqp as well, as Neural Compressor has it; their F1 is the metric F1.
    """
    if task == "cola":
        return matthews(predictions, labels)
    if task == "sts-b":
        both = (correlation(predictions, labels, f) for f in ("pearsonr", "spearmanr"))
        return sum(both) / 2
    return accuracy(predictions, labels)


def matthews(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """Return scikit-learn's Matthews correlation: 0 for one class alone, NaN for NaN."""
    from sklearn.metrics import matthews_corrcoef

    predicted, true = class_pairs(predictions, labels)
    refuse_nan_labels(true)
    if (predicted == NO_CLASS).any():
        return math.nan
    return float(matthews_corrcoef(true, predicted))


def miou(predictions: Sequence[Outputs], labels: Sequence[Any], num_classes: int = 21) -> float:
    """Return torchmetrics' Jaccard index over all pixels, the mean of the classes that occur.

    The first output has classes [batch, height, width] or scores [batch, classes, height, width].
    Pixels whose label is not from 0 to `num_classes` - 1 are left out; a score of NaN is wrong.
    """
    import torch
    from torchmetrics.functional.classification import multiclass_jaccard_index

    predicted, true = class_pairs(predictions, labels)
    counted = (true >= 0) & (true < num_classes)
    predicted, true = predicted[counted].astype(np.int64), true[counted].astype(np.int64)
    if true.size == 0:
        raise InputDataError(f"mIOU: no pixel has a label from 0 to {num_classes - 1}")
    if predicted.max() >= num_classes:
        raise InputDataError(
            f"mIOU: the model predicts class {predicted.max()}, and num_classes is {num_classes}"
        )
    # NaN pixels are no class: one more than there are takes them, and its own share is left out.
    predicted = np.where(predicted < 0, num_classes, predicted)
    shares = multiclass_jaccard_index(
        torch.from_numpy(predicted), torch.from_numpy(true), num_classes + 1, average="none"
    ).numpy()[:num_classes]
    occurs = np.isin(np.arange(num_classes), np.concatenate([predicted, true]))
    return float(shares[occurs].mean())


# --- numbers ---


def mean_error(
    predictions: Sequence[Outputs],
    labels: Sequence[Any],
    of: Callable[[Array], Array],
    compare_label: bool = True,
) -> float:
    """Return the mean of squares or absolute values (`of`) of the differences of all numbers.

    They are those of the first output from the labels; with `compare_label` False, of every
    floating-point output from the float model's.
    """
    if compare_label:
        return _mean(of(found - true) for found, true in number_pairs(predictions, labels))
    pairs = output_pairs(predictions, labels)
    floats = ((a, b) for a, b in pairs if a.dtype.kind == "f")
    return _mean(of(a.astype(np.float64) - b.astype(np.float64)) for a, b in floats)


def rmse(
    predictions: Sequence[Outputs], labels: Sequence[Any], compare_label: bool = True
) -> float:
    """Return the root of the mean square of the differences."""
    return math.sqrt(mean_error(predictions, labels, np.square, compare_label))


def _mean(parts: Iterator[Array]) -> float:
    sums = [(float(part.sum()), part.size) for part in parts]
    count = sum(size for _, size in sums)
    if count == 0:
        raise InputDataError("there are no numbers to compare: the outputs are empty or no floats")
    return sum(total for total, _ in sums) / count


def loss(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """Return the mean of the first output, which is the loss itself, whatever the labels."""
    nothing = [None] * len(predictions)
    return _mean(output.astype(np.float64) for output, _ in batches(predictions, nothing))


def correlation(predictions: Sequence[Outputs], labels: Sequence[Any], function: str) -> float:
    """Return SciPy's `pearsonr` or `spearmanr`; NaN where one side is constant or holds NaN."""
    from scipy import stats

    x, y = map(np.concatenate, zip(*number_pairs(predictions, labels), strict=True))
    if x.size < 2:
        raise InputDataError(f"a correlation needs two numbers at least; there is {x.size}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant input: NaN says it
        return float(getattr(stats, function)(x, y).statistic)
