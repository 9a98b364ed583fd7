"""What a value's numbers show, and what those of a sigmoid and a softmax tell of its input."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.onnx.check.distance import (
    Bounds,
    Squash,
    Uninformative,
    before,
    tensors,
    uninformative,
)

SIGMOID, SOFTMAX = Bounds(Squash.SIGMOID), Bounds(Squash.SOFTMAX)


def normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) * scale + shift).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    ("array", "bounds", "why"),
    [
        (normal(3, 4), None, None),
        (np.zeros((3, 4), np.float32), None, Uninformative.CONSTANT),
        (np.full((3, 4), 0.25, np.float32), None, Uninformative.CONSTANT),
        (np.zeros((1, 1), np.float32), None, Uninformative.CONSTANT),
        (np.float32([[0.3]]), None, None),  # one number is not the same everywhere
        (np.full((2, 2), np.nan, np.float32), None, Uninformative.NOT_FINITE),
        (np.zeros((0, 4), np.float32), None, Uninformative.EMPTY),
        (np.arange(6), None, Uninformative.NOT_FLOAT),
        (np.array([True, False]), None, Uninformative.NOT_FLOAT),
        (sigmoid(normal(50, 4)), SIGMOID, None),
        (sigmoid(normal(50, 4, shift=-16)), SIGMOID, Uninformative.SATURATED),
        (sigmoid(normal(50, 4, shift=12)), SIGMOID, Uninformative.SATURATED),
        (softmax(normal(50, 4)), SOFTMAX, None),
        (softmax(normal(50, 4, scale=500)), SOFTMAX, Uninformative.SATURATED),
        (softmax(normal(2, 50_000)), SOFTMAX, None),  # small, as there are many
        (np.clip(normal(50, 4, shift=9), 0, 1), Bounds(Squash.CLIP), Uninformative.CONSTANT),
        (np.tanh(normal(50, 4, scale=1e4)), Bounds(Squash.TANH), Uninformative.SATURATED),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_uninformative(array: np.ndarray, bounds: Bounds | None, why: Uninformative | None) -> None:
    assert uninformative([array], bounds) is why


def test_one_run_that_shows_something_is_enough() -> None:
    assert uninformative([np.zeros((2, 2), np.float32), normal(2, 2)]) is None


@pytest.mark.parametrize("shift", [-9, -3, 0, 3, 9])
def test_a_sigmoid_tells_what_it_was_given(shift: float) -> None:
    x = normal(20, 5, scale=0.5, shift=shift)
    found = before(sigmoid(x), SIGMOID)
    assert found is not None
    # Near 1 float32 holds what is left to 1 in steps of 6e-8.
    np.testing.assert_allclose(found, x, atol=1e-5 if shift <= 0 else 1e-7 * np.exp(shift + 2))


def test_a_softmax_tells_it_up_to_what_is_added_to_a_row() -> None:
    x = normal(20, 5, scale=8)
    found = before(softmax(x), SOFTMAX)
    assert found is not None
    np.testing.assert_allclose(found, x - x.mean(-1, keepdims=True), atol=1e-4)


@pytest.mark.parametrize(
    ("array", "bounds"),
    [
        (np.ones((3, 4), np.float32), SIGMOID),
        (np.zeros((3, 4), np.float32), SIGMOID),
        (sigmoid(normal(3, 4, shift=-16)), SIGMOID),
        (softmax(normal(50, 4, scale=500)), SOFTMAX),
        (normal(3, 4), Bounds(Squash.CLIP)),
    ],
)
def test_what_float32_does_not_hold_is_not_told(array: np.ndarray, bounds: Bounds) -> None:
    assert before(array, bounds) is None


def test_tensors_in_sequences_and_maps() -> None:
    x = normal(2, 3)
    assert [a.shape for a in tensors([x, x])] == [(2, 2, 3)]
    maps = [{"b": 0.25, "a": 0.75}, {"a": 0.5, "b": 0.5}]
    assert [a.tolist() for a in tensors(maps)] == [[[0.75, 0.25], [0.5, 0.5]]]
    assert tensors("text") == []
