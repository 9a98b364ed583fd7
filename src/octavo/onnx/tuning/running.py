"""Opens models for tuning, and runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from octavo.errors import InputDataError, did_you_mean, listed
from octavo.onnx.custom_ops import session_options
from octavo.onnx.read.map_types import as_array
from octavo.onnx.session import session
from octavo.recipe import Report
from octavo.recipe.target import Built, Feed

_DTYPES = {
    "tensor(bool)": "bool",
    "tensor(double)": "float64",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
}


def opened(path: str | os.PathLike[str], threads: int | None) -> ort.InferenceSession:
    """A session on a file, float or quantized. None leaves the threads to ONNX Runtime.

    Raises ModelError.
    """
    settings = {} if threads is None else {"intra_op_num_threads": threads}
    with session_options(**settings) as options:
        return session(path, sess_options=options)


def built(runner: ort.InferenceSession, size: int, report: Report | None = None) -> Built:
    """`runner` as tuning takes it, outputs that are maps as arrays; `size` in bytes."""

    types = {given.name: _DTYPES.get(given.type) for given in runner.get_inputs()}

    def run(feed: Feed) -> list[Any]:
        fed = {name: _as(types.get(name), value) for name, value in named(feed, types).items()}
        try:
            return [as_array(output) for output in runner.run(None, fed)]
        except Exception as error:
            for given in runner.get_inputs():
                if problem := _misfit(given, fed.get(given.name)):
                    raise InputDataError(problem) from error
            raise

    return Built(runner, run, size, report)


def named(feed: Feed, inputs: Iterable[str]) -> dict[str, Any]:
    """`feed` by the names of `inputs`, in whose order values without a name ("0", "1", ..) come.

    Raises InputDataError for more values than inputs, and for names that are none.
    """
    names = [*inputs]
    if not feed or any(not key.isdigit() or key in names for key in feed):
        for key in feed:
            if key not in names:
                hint = did_you_mean(key, names) + _vector(key, names)
                raise InputDataError(f"the model has no input {key!r}.{hint}")
        return dict(feed)
    if len(feed) > len(names):
        raise InputDataError(
            f"{len(feed)} inputs without names are given; the model takes {len(names)}: "
            f"{listed(names)}"
        )
    return {names[int(key)]: value for key, value in feed.items()}


def _vector(key: str, names: Sequence[str]) -> str:
    """Of `x_0`, where there is an input `x`."""
    name = re.sub(r"[_.]?\[?\d+\]?$", "", key)
    if name == key or name not in names:
        return ""
    return f" A vector is one value, such as a column {name} of lists: [0.5, 1.0]"


def _misfit(given: Any, value: Any) -> str:
    """What of a value that the model refused is not as the input is."""
    array = np.asarray(value)
    if value is not None and array.ndim != len(given.shape):
        return (
            f"input {given.name!r} has the shape {list(array.shape)}, and the model takes "
            f"{given.shape}: a run has all axes, the batch first; a sample a line of a .jsonl has "
            "one label"
        )
    if array.dtype.kind in "OUS" and given.type in _DTYPES:
        return f"input {given.name!r} holds texts, and the model takes {given.type}: give numbers"
    return ""


def _as(dtype: str | None, value: Any) -> Any:
    """Numbers in the input's own type: files and loaders give what they have (int64, float64)."""
    if dtype is None or getattr(value, "dtype", None) is None or value.dtype == dtype:
        return value
    return value.astype(dtype) if value.dtype.kind in "biuf" else value


def files_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(p.stat().st_size for p in folder.iterdir() if p.is_file())
