"""A model's accuracy: what it returns for the data, scored by a metric.

`closeness` needs no labels; metrics by name are `octavo.tune.inc.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.metrics import relative_error
from octavo.errors import InputDataError, OptionError, listed
from octavo.measure.data import Batch, Dataset

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Any]], Sequence[Any]]
Outputs = Sequence[Any]
"""What the model returned for one batch: its outputs in order, as NumPy arrays."""


class Against(Enum):
    """What predictions are compared with."""

    LABELS = "labels"
    FLOAT_MODEL = "the float model's outputs"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are.

    `against` says what `score` takes as its second argument: labels, one entry a batch (an array,
    a list or a single value), or what the float model returned for the same batches, or nothing.
    Metrics can be pickled.
    """

    name: str
    higher_is_better: bool
    against: Against
    compute: Callable[[Sequence[Outputs], Sequence[Any]], float] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_labels(self) -> bool:
        """Tell whether the data must have labels."""
        return self.against is Against.LABELS

    @property
    def needs_references(self) -> bool:
        """Tell whether predictions are compared with those of the float model."""
        return self.against is Against.FLOAT_MODEL

    def score(self, predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
        """Compute the metric over all batches together (not the mean of the batches' metrics).

        `predictions` has the outputs of each batch, `labels` what `against` says. NaN where the
        predictions hold NaN and the metric cannot count them as wrong. InputDataError where
        predictions and labels do not fit, with their shapes.
        """
        return float(self.compute(predictions, labels))


def accuracy(
    run: Run,
    dataset: Dataset,
    metric: Metric,
    limit: int | None = None,
    references: Sequence[Outputs] | None = None,
) -> float:
    """Score what `run`, a function from a feed to a model's outputs, returns for `dataset`.

    `limit` is how many batches are run, None or -1 all of them. `references` are the float model's
    `outputs` for the same batches, which metrics need that compare with it. NaN is returned as it
    is. Raises InputDataError where the data is empty or lacks the labels that the metric needs.
    """
    if metric.needs_references and references is None:
        raise OptionError(f"metric {metric.name} compares with the float model: give `references`")
    predictions: list[Outputs] = []
    labels: list[Any] = []
    for feed, label in _first(dataset, limit):
        if metric.needs_labels and label is None:
            raise InputDataError(
                f"{dataset.name}: metric {metric.name} needs labels, and batch {len(labels)} has "
                f"none beside {listed(feed) or 'nothing'}; call the column `label`, name "
                "another one as the label, or take the metric agreement"
            )
        predictions.append(list(run(feed)))
        labels.append(label)
    if not predictions:
        raise InputDataError(f"{dataset.name} holds no samples")
    compared = references if metric.needs_references and references is not None else labels
    return metric.score(predictions, compared)


def outputs(run: Run, dataset: Dataset, limit: int | None = None) -> list[Outputs]:
    """Return what `run` gives for each of the first `limit` batches: a float model's references."""
    return [list(run(feed)) for feed, _ in _first(dataset, limit)]


def _first(dataset: Dataset, limit: int | None) -> Iterator[Batch]:
    if limit is not None and limit != -1 and limit < 1:
        raise OptionError(f"limit is {limit}; it is a number of batches from 1, or -1 for all")
    return islice(dataset, None if limit in (None, -1) else limit)


def batches(predictions: Sequence[Outputs], labels: Sequence[Any]) -> Iterator[tuple[Array, Any]]:
    """Yield the first output of each batch, with the batch's label unchanged."""
    if not predictions:
        raise InputDataError("there are no predictions to score; the data holds no samples")
    if len(predictions) != len(labels):
        raise InputDataError(
            f"{len(predictions)} batches were predicted and {len(labels)} have labels; one each"
        )
    for number, (outputs, label) in enumerate(zip(predictions, labels, strict=True)):
        if len(outputs) == 0:
            raise InputDataError(f"batch {number}: the model returned no output")
        yield np.asarray(outputs[0]), label


def output_pairs(
    predictions: Sequence[Outputs], references: Sequence[Outputs]
) -> Iterator[tuple[Array, Array]]:
    """Yield every output of every batch beside the float model's."""
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


def closeness(predictions: Sequence[Outputs], references: Sequence[Outputs]) -> float:
    """Return 1 less the error of the worst floating-point output of any batch.

    The error is `octavo.core.metrics.relative_error`. The result is 1 for equal outputs; negative
    beyond an error of 1, minus infinity where a number is not finite and the float model's is.
    Without a floating-point output, the result is the share of equal elements.
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


CLOSENESS = Metric("closeness", True, Against.FLOAT_MODEL, closeness)
