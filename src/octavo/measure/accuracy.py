"""A model's accuracy: what it returns for the data, scored by a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from octavo.errors import InputDataError, OptionError, listed
from octavo.measure.data import Dataset
from octavo.measure.items import Batch
from octavo.measure.metrics import Metric, Outputs

Run = Callable[[Mapping[str, Any]], Sequence[Any]]


def accuracy(
    run: Run,
    dataset: Dataset,
    metric: Metric,
    limit: int | None = None,
    references: Sequence[Outputs] | None = None,
) -> float:
    """The score of what `run` (a model's outputs for a feed) returns for `dataset`.

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
    """What `run` returns for each of the first `limit` batches: references of a float model."""
    return [list(run(feed)) for feed, _ in _first(dataset, limit)]


def _first(dataset: Dataset, limit: int | None) -> Iterator[Batch]:
    if limit is not None and limit != -1 and limit < 1:
        raise OptionError(f"limit is {limit}; it is a number of batches from 1, or -1 for all")
    return islice(dataset, None if limit in (None, -1) else limit)
