"""Data to measure accuracy on: inputs and labels, batch by batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from octavo.errors import InputDataError, OptionError, did_you_mean
from octavo.measure.items import Batch, Feed, Replayable, batch
from octavo.measure.readers import READERS, require_library

BATCH_SIZE = 32


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
        """The first `count` feeds, fewer if there are fewer; InputDataError if there is none."""
        found = [feed for feed, _ in islice(self, count)]
        if not found and count > 0:
            raise InputDataError(f"{self.name} holds no samples")
        return found

    @classmethod
    def of(cls, items: Iterable[Any], *, label: str | None = None) -> Dataset:
        """The data in `items`: a data loader, a list, a generator, or a Dataset as it is.

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


@dataclass(frozen=True)
class _File:
    path: Path
    label: str | None
    batch_size: int

    def __iter__(self) -> Iterator[Batch]:
        return READERS[self.path.suffix](self.path, self.label, self.batch_size)


def read_data(
    path: str | Path, *, label: str | None = None, batch_size: int = BATCH_SIZE
) -> Dataset:
    """The data in a file, read anew in each pass.

    - `.npz`: each array has stacked samples along its first axis, as many in all of them.
    - `.csv`: a line of names, then one row a sample: numbers or texts, which give inputs [batch],
      or JSON lists of numbers in quotes, which give [batch, ...].
    - `.parquet`: one row a sample: numbers, texts or (nested) lists, which give inputs
      [batch, ...]; lists in one batch have one length.
    - `.jsonl`: one run of the model a line, as in the inputs of a check: an object of names to
      values with their batch axis, and a label for each sample; or one sample a line, without the
      batch axis, whose label is one value.

    All but runs in a `.jsonl` are cut into batches of `batch_size` samples, the last one may be
    smaller; models with a fixed batch axis need that size, mostly 1. The column or array `label` is
    the label, by default the one called `label` or `labels`; all others are inputs. Without one the
    data has no labels. NaN is a value as any other.

    Raises InputDataError for a missing file, an unknown suffix or a label that does not exist, and
    (while iterating, too) for what cannot be read; OptionError where pyarrow is needed and missing,
    or the batch size is not 1 or more.
    """
    path = Path(path)
    if path.suffix not in READERS:
        raise InputDataError(
            f"data {path}: the suffix is {path.suffix!r}.{did_you_mean(path.suffix, READERS)}"
        )
    if not path.is_file():
        beside = [p.name for p in path.parent.glob(f"*{path.suffix}")]
        raise InputDataError(f"data {path}: no such file.{did_you_mean(path.name, beside)}")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise OptionError(f"batch_size is {batch_size!r}; it is a whole number, 1 or more")
    require_library(path)
    found = Dataset(f"data {path}", _File(path, label, batch_size))
    found.feeds(1)
    return found
