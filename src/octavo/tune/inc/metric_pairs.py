"""What a model returned and what the data has as labels, brought into one form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError
from octavo.measure.accuracy import Array, Outputs, batches

NO_CLASS = np.iinfo(np.int64).min  # of scores that hold NaN: no label is equal to it


def label_array(label: Any, number: int) -> Array:
    """Return the labels of a batch as one array; a single label has the shape [1]."""
    if label is None:
        raise InputDataError(f"batch {number} has no label, which the metric needs")
    try:
        array = np.asarray(label)
    except ValueError as error:
        raise InputDataError(f"batch {number}: labels are no array: {error}") from error
    return array.reshape(1) if array.ndim == 0 else array


def squeezed(array: Array) -> Array:
    """Return `array` without axes of length 1, but at least one axis: [B, 1] becomes [B]."""
    return array.squeeze() if array.size != 1 else array.reshape(1)


def mismatch(number: int, scores: Array, labels: Array, wanted: str) -> InputDataError:
    """Return the error for predictions and labels that do not fit."""
    return InputDataError(
        f"batch {number}: predictions {list(scores.shape)} of {scores.dtype} and labels "
        f"{list(labels.shape)} of {labels.dtype} do not fit; {wanted}"
    )


def predicted_classes(scores: Array, axis: int, threshold: float = 0.5) -> Array:
    """Return the predicted class of each sample, or of each token or pixel.

    Floating-point scores [B, C], [B, T, C] (`axis` -1), [B, C, H, W] (`axis` 1) give the class with
    the largest score, the first of equal ones; one score a sample, [B] or [B, 1], gives 1 above
    `threshold` and 0 else; NaN gives no class. Integers, booleans and texts are classes already.
    """
    if scores.dtype.kind != "f":
        return _flat_end(scores)
    if scores.ndim < 2 or scores.shape[axis] == 1:
        single = scores if scores.ndim < 2 else scores.squeeze(axis)
        return np.where(np.isnan(single), NO_CLASS, single > threshold)
    nothing = np.isnan(scores).any(axis=axis)
    return np.where(nothing, NO_CLASS, scores.argmax(axis=axis))


def class_axis(scores: Array, labels: Array | None = None) -> int:
    """Return the axis of `scores` that runs over classes: one that labels lack, rather the last.

    Without labels, the second of images ([B, C, H, W] and above), the last of others.
    """
    if labels is None:
        return 1 if scores.ndim >= 4 else -1
    return -1 if scores.ndim < 2 or scores.shape[:-1] == labels.shape else 1


def _flat_end(array: Array) -> Array:
    return array[..., 0] if array.ndim >= 2 and array.shape[-1] == 1 else array


def label_classes(label: Any, number: int, scores: Array) -> Array:
    """Return each sample's true class; one-hot rows [B, C] beside scores [B, C] become classes."""
    labels = label_array(label, number)
    if labels.ndim != 2 or labels.shape != scores.shape or labels.shape[1] < 2:
        return _flat_end(labels)
    if scores.dtype.kind != "f":
        return labels
    if labels.dtype.kind in "fiub":
        hot = labels.astype(np.float64)
        if np.isin(hot, (0, 1)).all() and (hot.sum(axis=1) == 1).all():
            return np.asarray(hot.argmax(axis=1))
    raise mismatch(number, scores, labels, "labels are classes [batch], or rows with a single 1")


def class_pairs(
    predictions: Sequence[Outputs], labels: Sequence[Any], threshold: float = 0.5
) -> tuple[Array, Array]:
    """Predicted and true classes of all batches, flat."""
    found, true = [], []
    for number, (scores, label) in enumerate(batches(predictions, labels)):
        expected = label_classes(label, number, scores)
        predicted = predicted_classes(scores, class_axis(scores, expected), threshold)
        if predicted.shape != expected.shape:
            wanted = "scores are [batch, classes] or [batch], labels [batch]"
            raise mismatch(number, scores, label_array(label, number), wanted)
        if (predicted.dtype.kind in "OUS") != (expected.dtype.kind in "OUS"):
            wanted = "both are numbers, or both are texts"
            raise mismatch(number, scores, label_array(label, number), wanted)
        found.append(predicted.ravel())
        true.append(expected.ravel())
    return np.concatenate(found), np.concatenate(true)


def refuse_nan_labels(true: Array) -> None:
    """Raise InputDataError for a NaN among the true classes."""
    if true.dtype.kind == "f" and np.isnan(true).any():
        raise InputDataError(
            f"{int(np.isnan(true).sum())} of {true.size} labels are NaN, and classes are counted"
        )


def number_pairs(
    predictions: Sequence[Outputs], labels: Sequence[Any]
) -> Iterator[tuple[Array, Array]]:
    """Yield the first output and the labels of each batch as float64, flat.

    Their shapes are equal but for axes of length 1.
    """
    for number, (output, label) in enumerate(batches(predictions, labels)):
        target = label_array(label, number)
        if output.dtype.kind not in "fiub" or target.dtype.kind not in "fiub":
            raise mismatch(number, output, target, "both are numbers")
        if squeezed(output).shape != squeezed(target).shape:
            raise mismatch(number, output, target, "they have one shape")
        yield output.astype(np.float64).ravel(), target.astype(np.float64).ravel()
