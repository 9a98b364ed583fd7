"""Random arrays in the place of real inputs: how one input's values are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.core.samples import end_last_row, hidden_of, picture, sound, spread

Draw = Callable[[np.random.Generator], npt.NDArray[Any]]

_RATE = 16000
_OF_ROWS = 2  # axes of what has a row for each item of a batch
_LENGTH_WORDS = frozenset(["length", "lengths", "len", "lens"])
_POSITION_WORDS = frozenset(["position", "positions", "pos"])
_INDEX_WORDS = ("id", "ids", "idx", "index", "indices", "token", "tokens", "tok", "toks")


def draw_like(example: Any, shape: Sequence[int] | None = None) -> Any:
    """Return what draws values like those of `example`; the example itself where it is no array.

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


@dataclass(frozen=True)
class Table:
    """An embedding: how many rows it has, and which of them is padding."""

    rows: int
    padding: int | None = None


def draw_guesses(
    name: str, shape: Sequence[int], tables: Sequence[Table], longest: int = 1
) -> Iterator[Draw]:
    """Ways to draw an input of which the name and the shape are known, the likeliest first.

    `tables` are the model's embeddings: integers index one of them. `longest` is the longest axis
    of the inputs, which lengths are at most.
    """
    size = tuple(shape)
    words = name.lower().split("_")
    if "mask" in words:
        yield from _masks(words, size)
        return
    if len(size) <= 1 and not _LENGTH_WORDS.isdisjoint(words):
        yield from _lengths(size, longest)
    if not _POSITION_WORDS.isdisjoint(words):
        yield lambda rng: np.broadcast_to(np.arange(size[-1] if size else 1), size).copy()
    numbers = [_normal(size)]
    largest_first = sorted(set(tables), key=lambda table: table.rows, reverse=True)
    integers = [_indices(size, table) for table in largest_first]
    if "type" in words:
        integers.reverse()
    if any(word in _INDEX_WORDS for word in words):
        numbers, integers = integers, numbers
    yield from numbers
    yield from integers


def _masks(words: Sequence[str], size: tuple[int, ...]) -> Iterator[Draw]:
    """Masks that hide the end of one row: "attention_mask" has ones elsewhere, a padding mask of
    torch.nn's layers False. Their other masks, of queries and keys, hide nothing.
    """
    ones = [_ending(size, 1, 0, np.int64), _ending(size, 1, 0, np.float32)]
    of_padding = "padding" in words and len(size) == _OF_ROWS
    zeros = [_ending(size, 0, int(of_padding), np.bool_), _ending(size, 0, 0, np.float32)]
    theirs = not {"src", "tgt", "memory", "key", "attn", "padding"}.isdisjoint(words)
    yield from (*zeros, *ones) if theirs else (*ones, *zeros)


def _ending(size: tuple[int, ...], number: int, end: int, dtype: Any) -> Draw:
    """Build a draw of `number`, but `end` at the end of the last of several rows."""

    def draw(rng: np.random.Generator) -> npt.NDArray[Any]:
        found = np.full(size, number, dtype)
        end_last_row(found, end)
        return found

    return draw


def _lengths(size: tuple[int, ...], longest: int) -> Iterator[Draw]:
    """Yield a draw of lengths that are all whole but the last of several."""

    def draw(rng: np.random.Generator) -> npt.NDArray[Any]:
        found = np.full(size, longest)
        if found.size > 1:
            found[-1] -= hidden_of(longest)
        return found

    yield draw


def _normal(size: tuple[int, ...]) -> Draw:
    return lambda rng: rng.standard_normal(size, np.float32)


def draw_image(size: Sequence[int]) -> Draw:
    """Pictures, with channels before height and width."""
    return lambda rng: picture(tuple(size), False, rng).astype(np.float32)


def draw_audio(size: Sequence[int]) -> Draw:
    """Build a draw of samples of a sound along the last axis."""
    return lambda rng: sound(tuple(size), _RATE, rng).astype(np.float32)


def _indices(size: tuple[int, ...], table: Table) -> Draw:
    """Build a draw of indices over all rows, the last one among them; padding ends one row."""
    avoided = () if table.padding is None else (table.padding,)

    def draw(rng: np.random.Generator) -> npt.NDArray[Any]:
        found = spread(size, table.rows, avoided, rng)
        if table.padding != table.rows - 1:
            found.reshape(-1)[:1] = table.rows - 1
        if table.padding is not None and len(size) == _OF_ROWS:
            end_last_row(found, table.padding)
        return found

    return draw
