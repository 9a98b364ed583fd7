"""Random arrays in the place of real inputs: how one input's values are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Draw = Callable[[np.random.Generator], npt.NDArray[Any]]

_INDEX_WORDS = ("id", "ids", "idx", "index", "indices", "token", "tokens", "tok", "toks")


def like(example: Any, shape: Sequence[int] | None = None) -> Any:
    """What draws values like those of `example`; the example itself where it is no array.

    Floating-point numbers are normal with the example's mean and deviation, integers and booleans
    lie between its least and its greatest. `shape` is the example's unless given.
    """
    if not isinstance(example, (Tensor, np.ndarray)):
        return example
    values = _array(example)
    size = tuple(values.shape if shape is None else shape)
    if values.dtype.kind == "f":
        mean, deviation = _moments(values)
        return lambda rng: (mean + deviation * rng.standard_normal(size)).astype(values.dtype)
    if values.dtype.kind not in "iub" or not values.size:
        return lambda rng: np.broadcast_to(values, size).copy()
    low, high = int(values.min()), int(values.max())
    return lambda rng: rng.integers(low, high, size, np.int64, endpoint=True).astype(values.dtype)


def _array(example: Any) -> npt.NDArray[Any]:
    if isinstance(example, np.ndarray):
        return example
    tensor = example.detach().cpu()
    found: npt.NDArray[Any] = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return found


def _moments(values: npt.NDArray[Any]) -> tuple[float, float]:
    """Mean and deviation; 0 and 1 where all are the same, as in an example made by torch.zeros."""
    finite = values[np.isfinite(values)].astype(np.float64)
    deviation = float(finite.std()) if finite.size else 0.0
    return (float(finite.mean()), deviation) if deviation > 0 else (0.0, 1.0)


def guesses(name: str, shape: Sequence[int], rows: Sequence[int]) -> Iterator[Draw]:
    """Ways to draw an input of which the name and the shape are known, the likeliest first.

    `rows` are those of the model's embeddings: integers index one of them.
    """
    size = tuple(shape)
    words = name.lower().split("_")
    if "mask" in words:
        yield from _masks(words, size)
        return
    numbers = [_normal(size)]
    integers = [_below(size, most) for most in sorted(set(rows), reverse=True)]
    if any(word in _INDEX_WORDS for word in words):
        numbers, integers = integers, numbers
    yield from numbers
    yield from integers


def _masks(words: Sequence[str], size: tuple[int, ...]) -> Iterator[Draw]:
    """Masks that hide nothing: "attention_mask" has ones, torch.nn's masks zeros or False."""
    ones: list[Draw] = [lambda rng: np.ones(size, np.int64), lambda rng: np.ones(size, np.float32)]
    zeros: list[Draw] = [
        lambda rng: np.zeros(size, np.bool_),
        lambda rng: np.zeros(size, np.float32),
    ]
    theirs = not {"src", "tgt", "memory", "key", "attn", "padding"}.isdisjoint(words)
    yield from (*zeros, *ones) if theirs else (*ones, *zeros)


def _normal(size: tuple[int, ...]) -> Draw:
    return lambda rng: rng.standard_normal(size, np.float32)


def _below(size: tuple[int, ...], most: int) -> Draw:
    """Indices of a table of `most` rows, the last one among them."""

    def draw(rng: np.random.Generator) -> npt.NDArray[Any]:
        found = np.asarray(rng.integers(0, most, size))
        found.reshape(-1)[:1] = most - 1
        return found

    return draw
