"""Data files, read a batch at a time: .npz, .jsonl, .csv, .parquet.

A reader takes a path, the label's name (None: `label` or `labels`) and a batch size, and gives
batches. What cannot be read raises InputDataError with the path, and the line of a .jsonl.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.packages import need
from octavo.errors import InputDataError, OptionError, brief, did_you_mean
from octavo.measure.data import Batch, Dataset, Feed, array, label_name, split_label

BATCH_SIZE = 32


def read_data(
    path: str | Path, *, label: str | None = None, batch_size: int = BATCH_SIZE
) -> Dataset:
    """Open the data in a file, which is read anew in each pass.

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


@dataclass(frozen=True)
class _File:
    path: Path
    label: str | None
    batch_size: int

    def __iter__(self) -> Iterator[Batch]:
        return READERS[self.path.suffix](self.path, self.label, self.batch_size)


def read_npz(path: Path, label: str | None, batch_size: int) -> Iterator[Batch]:
    """Arrays of stacked samples; every array has the samples along its first axis."""
    try:
        if not zipfile.is_zipfile(path):  # NumPy speaks of pickled data then
            raise ValueError("it is no .npz archive")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        other = next((name for name, found in arrays.items() if type(found) is bytes), None)
        if other is not None:
            raise ValueError(f"{other!r} in it is no array")
    except Exception as error:  # zipfile and numpy each raise their own
        raise InputDataError(
            f"data {path}: cannot be read: {brief(error)}; write arrays with "
            "numpy.savez(path, name=array)"
        ) from error
    lengths = {name: len(a) if a.ndim else 0 for name, a in arrays.items()}
    if len(set(lengths.values())) > 1 or any(a.ndim == 0 for a in arrays.values()):
        shown = ", ".join(f"{name} {list(a.shape)}" for name, a in arrays.items())
        raise InputDataError(
            f"data {path}: arrays are stacked samples, as many in each along the first axis, and "
            f"these are {shown}; make them of one length"
        )
    for start in range(0, max(lengths.values(), default=0), batch_size):
        part = {name: a[start : start + batch_size] for name, a in arrays.items()}
        yield split_label(part, label, f"data {path}")


def read_jsonl(path: Path, label: str | None, batch_size: int) -> Iterator[Batch]:
    """Read batches from a file of JSON objects of names to values, one a line.

    A line is one run, with the batch axis; or one sample, without it, whose label is one value:
    samples are put together to batches.
    """
    waiting: list[Batch] = []
    for inputs, found in _lines(path, label):
        if not _is_sample(inputs, found):
            yield from _stacked(waiting)
            waiting = []
            yield inputs, found
            continue
        if waiting and (len(waiting) == batch_size or _shapes(waiting[0]) != _shapes((inputs, 0))):
            yield from _stacked(waiting)
            waiting = []
        waiting.append((inputs, found))
    yield from _stacked(waiting)


def _is_sample(inputs: Feed, label: Any) -> bool:
    """Tell whether a line is a sample: one label, and inputs that are no batch of one."""
    if label is None or isinstance(label, (list, dict)) or np.ndim(label):
        return False
    return all(a.ndim == 0 or a.shape[0] != 1 or a.ndim == 1 for a in inputs.values())


def _shapes(batch: Batch) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in batch[0].items()}


def _stacked(samples: Sequence[Batch]) -> Iterator[Batch]:
    """Yield samples of equal shapes as one batch; nothing where there are no samples."""
    if samples:
        names = samples[0][0]
        inputs = {name: np.stack([feed[name] for feed, _ in samples]) for name in names}
        yield inputs, _regular([label for _, label in samples])


def _lines(path: Path, label: str | None) -> Iterator[Batch]:
    """Yield the inputs and the label of each line as it stands."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"data {path}, line {number}"
            if not line.strip():
                continue
            try:
                run = json.loads(line.decode("utf-8"))
                if not isinstance(run, dict):
                    raise TypeError(f"a line is a JSON object, and this is a {type(run).__name__}")
                name = label_name(run, label, where)
                inputs = {key: array(value) for key, value in run.items() if key != name}
                yield inputs, None if name is None else _regular(run[name])
            except InputDataError:
                raise
            except (ValueError, TypeError, RecursionError) as error:
                raise InputDataError(
                    f"{where}: {brief(error)}; write one JSON object a line, such as "
                    '{"x": [[0.5, 1.0]], "label": [1]}'
                ) from error


def _regular(value: Any) -> Any:
    """Numbers and regular lists of numbers as an array, everything else as it is."""
    try:
        found = np.asarray(value)
    except ValueError:
        return value
    return found if found.dtype.kind in "fiub" else value


def read_csv(path: Path, label: str | None, batch_size: int) -> Iterator[Batch]:
    """Read batches from a CSV file of one row a sample, below a line of names.

    A cell may be a JSON list of numbers.
    """
    from pyarrow import csv

    options = csv.ConvertOptions(null_values=["", "NA", "N/A", "NULL", "null"])  # NaN is a number
    yield from _tables(
        path, label, batch_size, lambda: [csv.read_csv(path, convert_options=options)]
    )


def read_parquet(path: Path, label: str | None, batch_size: int) -> Iterator[Batch]:
    """Read batches from a Parquet file of one row a sample.

    Lists in a column are a sample's axes and have one length in a batch.
    """
    from pyarrow import parquet

    def read() -> Iterator[Any]:
        with parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)

    yield from _tables(path, label, batch_size, read)


def _tables(
    path: Path, label: str | None, batch_size: int, read: Callable[[], Any]
) -> Iterator[Batch]:
    import pyarrow

    rest: Any = None
    try:
        for table in read():
            rest = table if rest is None else pyarrow.concat_tables([rest, table])
            while rest.num_rows >= batch_size:
                yield _rows(rest.slice(0, batch_size), label, path)
                rest = rest.slice(batch_size)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputDataError(f"data {path}: cannot be read: {brief(error)}") from error
    if rest is not None and rest.num_rows:
        yield _rows(rest, label, path)


def _rows(table: Any, label: str | None, path: Path) -> Batch:
    try:
        names = table.column_names
    except UnicodeDecodeError as error:
        raise InputDataError(f"data {path}: the names of columns: {brief(error)}") from error
    name = label_name(names, label, f"data {path}")
    if twice := [column for column, count in Counter(names).items() if count > 1]:
        raise InputDataError(f"data {path}: two columns are named {twice[0]!r}; name them apart")
    columns = {}
    for column in names:
        if column == name:
            continue
        try:
            columns[column] = _column(table[column].combine_chunks())
        except (ValueError, TypeError) as error:
            raise InputDataError(f"data {path}: column {column!r}: {brief(error)}") from error
    if name is None:
        return columns, None
    try:
        return columns, _column(table[name].combine_chunks(), nulls=True)
    except UnicodeDecodeError as error:
        raise InputDataError(f"data {path}: column {name!r}: {brief(error)}") from error
    except (ValueError, TypeError):
        return columns, table[name].to_pylist()  # several texts, boxes: each metric knows its own


def _column(column: Any, nulls: bool = False) -> npt.NDArray[Any]:
    """Return a pyarrow column as an array [rows, ...]."""
    from pyarrow import compute, types

    if column.null_count and not (nulls and not types.is_nested(column.type)):
        raise ValueError(f"{column.null_count} of {len(column)} values are missing")
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_list(column.type):
        lengths = compute.list_value_length(column).to_pylist()
        if len(set(lengths)) > 1:
            raise ValueError(
                f"lists have {min(lengths)} to {max(lengths)} items, and a batch needs one length; "
                "pad them, or take a batch size of 1"
            )
        inner = _column(column.flatten())
        return inner.reshape(len(column), lengths[0] if lengths else 0, *inner.shape[1:])
    if types.is_string(column.type) or types.is_large_string(column.type):
        return _texts(column.to_pylist())
    if types.is_nested(column.type):
        raise TypeError(f"values of type {column.type} are no numbers, texts or lists of them")
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "fiub":
        raise TypeError(f"values of type {column.type} are no numbers, texts or lists of them")
    return found


def _texts(cells: Sequence[str | None]) -> npt.NDArray[Any]:
    """Texts as they are; lists that are written as texts, as a .csv must, as [rows, ...]."""
    if not all(cell is not None and _NUMBERS.fullmatch(cell) for cell in cells):
        return np.array(cells, dtype=object)
    rows = []
    for cell in cells:
        try:
            rows.append(np.asarray(json.loads(str(cell))))
        except ValueError as error:
            raise ValueError(
                f"{str(cell)[:40]!r} looks like a list and is none: write it as JSON, in quotes: "
                '"[0.5, 1.0]"'
            ) from error
    if len({row.shape for row in rows}) > 1:
        lengths = sorted({len(row) for row in rows})
        raise ValueError(
            f"lists have {lengths[0]} to {lengths[-1]} items, and a batch needs one length; pad "
            "them, or take a batch size of 1"
        )
    return np.stack(rows) if rows[0].dtype.kind in "fiub" else np.array(cells, dtype=object)


_NUMBERS = re.compile(r"\s*\[[-+.,\deE\s\[\]]*\d[-+.,\deE\s\[\]]*\]\s*")
"""A list of numbers, well written or not."""


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


READERS: dict[str, Callable[[Path, str | None, int], Iterator[Batch]]] = {
    ".npz": read_npz,
    ".jsonl": read_jsonl,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


def require_library(path: Path) -> None:
    """Raise OptionError where `path` needs a library that is not installed."""
    if path.suffix in (".csv", ".parquet"):
        need(f"data {path}: {path.suffix} needs", "pyarrow", error=OptionError)
