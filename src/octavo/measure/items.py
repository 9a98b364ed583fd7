"""What data loaders give, as NumPy arrays by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import InputDataError, listed

Feed = dict[str, npt.NDArray[Any]]
Batch = tuple[Feed, Any]

LABELS = ("label", "labels")
"""Columns that hold the label, unless another one is named."""


def array(value: Any) -> npt.NDArray[Any]:
    """`value` as an array: arrays, PyTorch tensors, numbers, texts, nested lists of them.

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
    """A label with its arrays and tensors as NumPy arrays; its lists, mappings and texts stay."""
    if isinstance(value, Mapping):
        return {key: label_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [label_value(part) for part in value]
    if value is None or isinstance(value, (str, bytes)):
        return value
    return array(value)


def batch(item: Any, number: int, label: str | None) -> Batch:
    """`item`, the `number`th from 0, as a feed and its label."""
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
    """Inputs by name; those that come without names are called "0", "1", ... in order."""
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
    """Which of `columns` holds the label: the one that is asked for, else one of LABELS.

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
