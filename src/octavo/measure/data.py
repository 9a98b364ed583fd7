"""Data to measure accuracy on: inputs and labels, batch by batch, as NumPy arrays by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.feeds import LABELS
from octavo.errors import InputDataError, listed

Feed = dict[str, npt.NDArray[Any]]
Batch = tuple[Feed, Any]


@dataclass(frozen=True)
class Dataset:
    """Batches of (feed, label): `for feed, label in dataset`, as often as wanted.

    A feed maps the names of inputs to NumPy arrays; inputs without names are called "0", "1", ...
    in the model's order. The label is an array, a list (texts, boxes, ...) or None. Types are those
    of the source: numbers from text are int64 and float64, and the model's run converts them.

    `name` says where the data comes from. It can be pickled if its source can; files go by path.
    """

    name: str
    source: Iterable[Batch]

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.source)

    def feeds(self, count: int) -> list[Feed]:
        """Return the first `count` feeds, or all if fewer; InputDataError if there is none."""
        found = [feed for feed, _ in islice(self, count)]
        if not found and count > 0:
            raise InputDataError(f"{self.name} holds no samples")
        return found

    @classmethod
    def of(cls, items: Iterable[Any], *, label: str | None = None) -> Dataset:
        """Wrap the data in `items`: a data loader, a list, a generator, or a Dataset as it is.

        An item is one run of the model, with its batch axis: (inputs, label), where inputs are an
        array, a tuple (or a list) of arrays in the model's order, or a mapping of names to arrays;
        or inputs alone; or one mapping that has the label under `label` or `labels` (or the name
        that is given). Arrays may be PyTorch tensors, lists of numbers and single numbers.

        What runs only once (a generator) is kept in memory as it comes. Raises InputDataError for
        what is not iterable, and while iterating for items of other forms, with their position.
        """
        if isinstance(items, Dataset):
            return items
        if not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
            raise InputDataError(
                f"the data is a {type(items).__name__}; give a data loader or another iterable of "
                "(inputs, label)"
            )
        if isinstance(items, (str, bytes, os.PathLike)):
            raise InputDataError(f"the data is {items!r}; files are read by read_data")
        if isinstance(items, Iterator):
            items = Replayable(items)
        return cls(f"the data ({type(items).__name__})", _Items(items, label))


@dataclass(frozen=True)
class _Items:
    items: Iterable[Any]
    label: str | None

    def __iter__(self) -> Iterator[Batch]:
        for number, item in enumerate(iter(self.items)):
            yield batch(item, number, self.label)


def array(value: Any) -> npt.NDArray[Any]:
    """Convert `value` to an array.

    `value` may be an array, a PyTorch tensor, a number, a text or a nested list of them.

    Texts become arrays of objects. Raises ValueError or TypeError for what is no array.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.numpy() if hasattr(value, "numpy") else value
    found = np.asarray(value)
    if found.dtype.kind in "US":
        return found.astype(object)
    if found.dtype.kind == "O" and not all(isinstance(v, (str, bytes)) for v in found.ravel()):
        raise TypeError(f"a {type(value).__name__} of {found.ravel()[:1].tolist()!r} is no array")
    return found


def label_value(value: Any) -> Any:
    """Convert a label's arrays and tensors to NumPy arrays; its lists, mappings and texts stay."""
    if isinstance(value, Mapping):
        return {key: label_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [label_value(part) for part in value]
    if value is None or isinstance(value, (str, bytes)):
        return value
    return array(value)


def batch(item: Any, number: int, label: str | None) -> Batch:
    """Return `item`, the `number`th from 0, as a feed and its label."""
    try:
        if isinstance(item, Mapping):
            return split_label(item, label, f"item {number}")
        pair = isinstance(item, (tuple, list)) and len(item) == 2
        inputs, found = item if pair else (item, None)
        if isinstance(item, tuple) and not pair:
            raise TypeError(f"a tuple of {len(item)} is neither inputs nor (inputs, label)")
        return feed(inputs), label_value(found)
    except InputDataError:
        raise
    except (ValueError, TypeError) as error:
        raise InputDataError(
            f"item {number} of the data: {error}; an item is (inputs, label), and inputs are an "
            "array, a tuple of arrays or a mapping of names to arrays"
        ) from error


def feed(inputs: Any) -> Feed:
    """Return inputs as arrays by name; those without names are called "0", "1", ... in order."""
    if isinstance(inputs, Mapping):
        return {str(name): array(value) for name, value in inputs.items()}
    several = isinstance(inputs, tuple) or (
        isinstance(inputs, list) and any(hasattr(part, "shape") for part in inputs)
    )
    parts = inputs if several else [inputs]
    return {str(position): array(part) for position, part in enumerate(parts)}


def split_label(columns: Mapping[str, Any], label: str | None, where: str) -> Batch:
    """Columns by name as a feed and its label."""
    name = label_name(columns, label, where)
    inputs = {key: value for key, value in columns.items() if key != name}
    return feed(inputs), None if name is None else label_value(columns[name])


def label_name(columns: Iterable[str], label: str | None, where: str) -> str | None:
    """Return which of `columns` holds the label: `label` where that is given, else one of LABELS.

    Raises InputDataError where the one that is asked for is missing, or both of LABELS are there.
    """
    known = list(columns)
    if label is not None:
        if label not in known:
            raise InputDataError(
                f"{where}: there is no label {label!r}; it has {listed(known)}: name one of them"
            )
        return label
    found = [name for name in LABELS if name in known]
    if len(found) > 1:
        raise InputDataError(
            f"{where}: {' and '.join(found)} are both there; name one as the label"
        )
    return found[0] if found else None


class Replayable:
    """The items of an iterator that runs only once, kept as they come so that they come again."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._seen: list[Any] = []
        self._rest: Iterator[Any] = items

    def __iter__(self) -> Iterator[Any]:
        position = 0
        while True:
            if position == len(self._seen):
                try:
                    self._seen.append(next(self._rest))
                except StopIteration:
                    return
            yield self._seen[position]
            position += 1

    def __reduce__(self) -> tuple[type[Replayable], tuple[Iterator[Any]]]:
        return Replayable, (iter(list(self)),)  # a generator cannot be pickled, a list's can
