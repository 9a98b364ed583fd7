"""Metrics that are objects with reset, update and result."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from octavo.errors import InputDataError, OptionError
from octavo.measure.accuracy import Against
from octavo.tune.inc.metrics import metric_of_object


class Hits:
    """As a user of Neural Compressor writes it for ONNX models: predictions are a list."""

    def __init__(self, k: int = 1) -> None:
        self.k = k
        self.reset()

    def reset(self) -> None:
        self.right, self.seen = 0, 0

    def update(self, predictions: Any, labels: Any, sample_weight: Any = None) -> None:
        assert isinstance(predictions, list)
        best = np.argsort(predictions[0], axis=1)[:, -self.k :]
        self.right += int((best == np.asarray(labels)[:, None]).any(axis=1).sum())
        self.seen += len(labels)

    def result(self) -> float:
        return self.right / self.seen


class TorchHits(Hits):
    def update(self, predictions: Any, labels: Any, sample_weight: Any = None) -> None:
        assert isinstance(predictions, torch.Tensor)
        self.right += int((predictions.topk(self.k).indices == labels[:, None]).any(dim=1).sum())
        self.seen += len(labels)


class Distance:
    higher_is_better = False
    compare_label = False

    def reset(self) -> None:
        self.total = 0.0

    def update(self, predictions: Any, references: Any) -> None:
        self.total += float(np.abs(predictions[0] - references[0]).sum())

    def result(self) -> Any:
        return np.float32(self.total)


class Wrapped:
    """As Neural Compressor's `common.Metric`: what to make the metric of."""

    def __init__(self, metric_cls: Any, name: str, **kwargs: Any) -> None:
        self.metric_cls, self.name, self.kwargs = metric_cls, name, kwargs


SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], np.float32)
BATCHES = [[SCORES[:2]], [SCORES[2:]]]
LABELS = [np.array([1, 1]), np.array([2])]


@pytest.mark.parametrize(
    ("metric", "tensors", "expected"),
    [(Hits(), False, 2 / 3), (Hits(2), False, 1.0), (TorchHits(), True, 2 / 3)],
)
def test_it_is_fed_batch_by_batch(metric: Any, tensors: bool, expected: float) -> None:
    found = metric_of_object(metric, tensors=tensors)
    assert found.name == type(metric).__name__
    assert found.higher_is_better
    assert found.against is Against.LABELS
    for _ in range(2):  # it is reset each time
        assert found.score(BATCHES, LABELS) == pytest.approx(expected)
    assert pickle.loads(pickle.dumps(found)).score(BATCHES, LABELS) == pytest.approx(expected)
    assert found.options["source"]


def test_several_outputs_of_a_module_are_a_tuple() -> None:
    class Count(Hits):
        def update(self, predictions: Any, labels: Any, sample_weight: Any = None) -> None:
            assert isinstance(predictions, tuple)
            assert all(isinstance(one, torch.Tensor) for one in predictions)
            self.right, self.seen = len(predictions), 1

    assert metric_of_object(Count(), tensors=True).score([[SCORES, SCORES]], LABELS[:1]) == 2


def test_what_it_says_of_itself_is_heard() -> None:
    found = metric_of_object(Distance())
    assert not found.higher_is_better
    assert found.against is Against.FLOAT_MODEL
    assert found.score(BATCHES, [[SCORES[:2] + 1], [SCORES[2:]]]) == pytest.approx(6.0)


def test_one_that_is_wrapped_is_made() -> None:
    found = metric_of_object(Wrapped(Hits, "top2", k=2))
    assert found.name == "top2"
    assert found.score(BATCHES, LABELS) == 1.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Hits, r"Hits is a class; give an object: Hits\(\)"),
        (3, "is a int without reset, update, result"),
        (None, "is a NoneType without"),
    ],
)
def test_what_is_no_metric_is_refused(given: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        metric_of_object(given)


def test_a_result_that_is_no_number_is_an_error() -> None:
    class Odd(Hits):
        def result(self) -> Any:
            return {"top1": 0.5}

    with pytest.raises(InputDataError, match=r"Odd: result\(\) returned .*needs a number"):
        metric_of_object(Odd()).score(BATCHES, LABELS)
