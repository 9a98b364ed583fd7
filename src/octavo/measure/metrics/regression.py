"""MSE, RMSE, MAE, Loss, Pearson and Spearman: how far numbers are from what they should be."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError
from octavo.measure.metrics.arrays import Array, batches, number_pairs
from octavo.measure.metrics.definition import BOOLEAN, Against, Entry, Outputs


def mse(predictions: Sequence[Outputs], labels: Sequence[Any], compare_label: bool = True) -> float:
    """The mean of squared differences, over every number of the first output.

    With `compare_label: false`, over every floating-point output, from the float model's.
    """
    return _mean(np.square(d) for d in _differences(predictions, labels, compare_label))


def rmse(
    predictions: Sequence[Outputs], labels: Sequence[Any], compare_label: bool = True
) -> float:
    """The root of `mse`."""
    return math.sqrt(mse(predictions, labels, compare_label))


def mae(predictions: Sequence[Outputs], labels: Sequence[Any], compare_label: bool = True) -> float:
    """The mean of absolute differences, else as `mse`."""
    return _mean(np.abs(d) for d in _differences(predictions, labels, compare_label))


def _differences(
    predictions: Sequence[Outputs], labels: Sequence[Any], compare_label: bool
) -> Iterator[Array]:
    if compare_label:
        for predicted, true in number_pairs(predictions, labels):
            yield predicted - true
        return
    for other, reference in output_pairs(predictions, labels):
        if other.dtype.kind == "f":
            yield other.astype(np.float64) - reference.astype(np.float64)


def output_pairs(
    predictions: Sequence[Outputs], references: Sequence[Outputs]
) -> Iterator[tuple[Array, Array]]:
    """Every output of every batch beside the float model's."""
    for number, (_, reference) in enumerate(batches(predictions, references)):
        outputs = predictions[number]
        if reference is None or len(outputs) != len(reference):
            raise InputDataError(
                f"batch {number}: the model returned {len(outputs)} outputs and the float model "
                f"{0 if reference is None else len(reference)}"
            )
        for index, (mine, theirs) in enumerate(zip(outputs, reference, strict=True)):
            a, b = np.asarray(mine), np.asarray(theirs)
            if a.shape != b.shape:
                raise InputDataError(
                    f"batch {number}, output {index}: the shape is {list(a.shape)}, and the float "
                    f"model's {list(b.shape)}"
                )
            yield a, b


def _mean(parts: Iterator[Array]) -> float:
    total, count = 0.0, 0
    for part in parts:
        total += float(part.sum())
        count += part.size
    if count == 0:
        raise InputDataError("there are no numbers to compare: the outputs are empty or no floats")
    return total / count


def loss(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """The mean of the first output, which is the loss itself; labels are not looked at."""
    return _mean(
        output.astype(np.float64) for output, _ in batches(predictions, [None] * len(predictions))
    )


def pearson(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """SciPy's Pearson correlation; NaN where one side is constant or holds NaN."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predictions, labels)


def spearman(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """SciPy's Spearman rank correlation; NaN where one side is constant or holds NaN."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predictions, labels)


def _correlation(correlate: Any, predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    pairs = list(number_pairs(predictions, labels))
    x = np.concatenate([predicted for predicted, _ in pairs])
    y = np.concatenate([true for _, true in pairs])
    if x.size < 2:
        raise InputDataError(f"a correlation needs two numbers at least; there is {x.size}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant input: NaN says it
        return float(correlate(x, y).statistic)


def _error(score: Any) -> Entry:
    return Entry(score, higher_is_better=False, options={"compare_label": BOOLEAN})


METRICS = {
    "MSE": _error(mse),
    "RMSE": _error(rmse),
    "MAE": _error(mae),
    "Loss": Entry(loss, higher_is_better=False, against=Against.NOTHING),
    "Pearson": Entry(pearson, libraries=("scipy",)),
    "Spearman": Entry(spearman, libraries=("scipy",)),
}
