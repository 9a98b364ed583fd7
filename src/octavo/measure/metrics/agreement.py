"""agreement and closeness: how much a model does as the float model does. No labels are needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from octavo.core.metrics import relative_error
from octavo.errors import InputDataError
from octavo.measure.metrics.arrays import Array, class_axis, classes
from octavo.measure.metrics.definition import Against, Entry, Outputs, number
from octavo.measure.metrics.regression import output_pairs


def agreement(
    predictions: Sequence[Outputs], references: Sequence[Outputs], threshold: float = 0.5
) -> float:
    """The share of samples for which the first output gives the class that the float model gives.

    Classes are those of `Accuracy`; the class axis is the second of images ([B, C, H, W]), else the
    last. Where both give NaN they agree.
    """
    first = [outputs[:1] for outputs in predictions]
    theirs = [() if outputs is None else outputs[:1] for outputs in references]
    same = []
    for a, b in output_pairs(first, theirs):
        axis = class_axis(b)
        same.append((classes(a, axis, threshold) == classes(b, axis, threshold)).ravel())
    equal = np.concatenate(same)
    if equal.size == 0:
        raise InputDataError("there are no samples to compare: the first output is empty")
    return float(np.mean(equal))


def closeness(predictions: Sequence[Outputs], references: Sequence[Outputs]) -> float:
    """1 less `octavo.core.metrics.relative_error` of the worst floating-point output of any batch.

    1 for equal outputs; negative beyond an error of 1, minus infinity where a number is not finite
    and the float model's is. Without a floating-point output, the share of equal elements.
    """
    pairs = list(output_pairs(predictions, references))
    floats = [(a, b) for a, b in pairs if b.dtype.kind == "f"]
    if floats:
        return 1.0 - max(_error(a, b) for a, b in floats)
    size = sum(b.size for _, b in pairs)
    if size == 0:
        raise InputDataError("there is nothing to compare: the outputs are empty")
    return sum(int(np.sum(a == b)) for a, b in pairs) / size


def _error(other: Array, reference: Array) -> float:
    same = (other == reference) | (np.isnan(other) & np.isnan(reference))
    if not np.isfinite(np.where(same, 0, other)).all():
        return math.inf
    lasting = np.isfinite(reference)  # -inf in a mask, in both
    if not (same | lasting).all():
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # too large to square
        error = relative_error(reference[lasting], other[lasting])
    return math.inf if math.isnan(error) else error


METRICS = {
    "agreement": Entry(
        agreement,
        against=Against.FLOAT_MODEL,
        options={"threshold": number(-math.inf, math.inf)},
    ),
    "closeness": Entry(closeness, against=Against.FLOAT_MODEL),
}
