"""Data files, read a batch at a time: .npz, .jsonl, .csv, .parquet.

A reader takes a path, the label's name (None: `label` or `labels`) and a batch size, and gives
batches. What cannot be read raises InputDataError with the path, and the line of a .jsonl.
"""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import InputDataError, OptionError, brief, pip_install
from octavo.measure.items import Batch, array, label_name, split


def read_npz(path: Path, label: str | None, batch_size: int) -> Iterator[Batch]:
    """Arrays of stacked samples; every array has the samples along its first axis."""
    try:
        if not zipfile.is_zipfile(path):  # NumPy speaks of pickled data then
            raise ValueError("it is no .npz archive")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
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
        yield split(part, label, f"data {path}")


def read_jsonl(path: Path, label: str | None, batch_size: int) -> Iterator[Batch]:
    """One run a line, a JSON object of names to values, with the batch axis; `batch_size` is not
    looked at."""
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
            except (ValueError, TypeError) as error:
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
    """One row a sample, below a line of names."""
    from pyarrow import csv

    options = csv.ConvertOptions(null_values=["", "NA", "N/A", "NULL", "null"])  # NaN is a number
    yield from _tables(
        path, label, batch_size, lambda: [csv.read_csv(path, convert_options=options)]
    )


def read_parquet(path: Path, label: str | None, batch_size: int) -> Iterator[Batch]:
    """One row a sample; lists in a column are a sample's axes and have one length in a batch."""
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
    name = label_name(table.column_names, label, f"data {path}")
    columns = {}
    for column in table.column_names:
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
    except (ValueError, TypeError):
        return columns, table[name].to_pylist()  # several texts, boxes: each metric knows its own


def _column(column: Any, nulls: bool = False) -> npt.NDArray[Any]:
    """A column as [rows, ...]."""
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
        return np.array(column.to_pylist(), dtype=object)
    if types.is_nested(column.type):
        raise TypeError(f"values of type {column.type} are no numbers, texts or lists of them")
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "fiub":
        raise TypeError(f"values of type {column.type} are no numbers, texts or lists of them")
    return found


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
    """Raises OptionError where `path` needs a library that is not installed."""
    if path.suffix in (".csv", ".parquet") and importlib.util.find_spec("pyarrow") is None:
        raise OptionError(
            f"data {path}: {path.suffix} is read with pyarrow, which is not installed: "
            f"{pip_install('pyarrow')}"
        )
