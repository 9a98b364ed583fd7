"""Inputs of a model's runs: read from files, and in words."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import InputDataError, brief

Shapes = Mapping[str, Sequence[int]]
"""By names of inputs."""

LABELS = ("label", "labels")
"""Names of the label in a file of inputs, unless another one is named."""

GIVE = "give a .npz or .jsonl file, a mapping of input names to arrays, or a list of mappings"

_WRITE = {
    ".npz": "write arrays with numpy.savez(path, name=array)",
    ".jsonl": 'write one JSON object a line, such as {"x": [[0.5, 1.0]]}',
}


def read_runs(path: Path) -> list[tuple[str, Any]]:
    """Return each run with its place in the file: a .npz is one run, a .jsonl has one a line.

    Raises InputDataError for another file, and one that cannot be read.
    """
    if not path.is_file():
        raise InputDataError(f"inputs {path}: no such file; {GIVE}")
    if path.suffix not in (".npz", ".jsonl"):
        raise InputDataError(f"inputs {path}: the suffix is {path.suffix!r}; {GIVE}")
    where = str(path)
    try:
        if path.suffix == ".npz":
            if not zipfile.is_zipfile(path):  # NumPy speaks of pickled data then
                raise ValueError("it is no .npz archive")
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
                if any(type(found) is bytes for found in arrays.values()):
                    raise ValueError("it holds a file that is no array")
                return [(where, arrays)]
        runs = []
        # Not splitlines: a text may hold other ends of lines, as U+2028.
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            where = f"{path}, line {number}"
            if line.strip():
                runs.append((where, json.loads(line)))
    except Exception as error:  # zipfile, json and numpy each raise their own
        raise InputDataError(
            f"inputs {where}: cannot be read: {brief(error)}; {_WRITE[path.suffix]}"
        ) from error
    return runs


def shape_text(feed: Mapping[str, Any]) -> str:
    """Return the shapes of inputs as text, as `ids=1x128,mask=1x128`.

    An input without dimensions is `scalar`, and one of ONNX's maps is `map`.
    """
    return ",".join(f"{name}={_form(value)}" for name, value in feed.items())


def _form(value: Any) -> str:
    inside = value[0] if isinstance(value, list) and value else value
    if isinstance(inside, Mapping):
        return "map" if inside is value else f"{len(value)} maps"
    return "x".join(map(str, np.shape(value))) or "scalar"


def batch(feed: Mapping[str, Any]) -> int:
    """Return the first dimension, where all inputs share it, else 1."""
    first = {np.shape(array)[:1] for array in feed.values()}
    (only,) = first if len(first) == 1 else ((),)
    return max(1, *only) if only else 1


def fitting_shapes(shapes: Shapes, runs: Callable[[Shapes], Mapping[str, Any] | None]) -> str:
    """Say which shapes a model runs on, where it does not on `shapes`; mostly not "".

    `runs` makes up inputs of some shapes, and returns what the model ran on, or None. Of lengths,
    the second axes, short ones are tried and doubled, as tables of positions have an end: so
    nothing is run that is much longer than what the model takes.
    """
    longest = max((shape[1] for shape in shapes.values() if len(shape) > 1), default=1)
    low = min(_SHORT, longest // 2)

    def fits(length: int) -> bool:
        return runs(_cut(shapes, longest, length)) is not None

    if low and fits(low):
        high = 2 * low
        while high < min(longest, _LONG) and fits(high):
            low, high = high, 2 * high
        high = min(high, longest)
        while high - low > 1 and high < _LONG:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        found = {name: np.empty(shape) for name, shape in _cut(shapes, longest, low).items()}
        return f"it runs on {shape_text(found)}, for example"
    made = runs({})
    return "" if made is None else f"it runs on {shape_text(made)}, for example"


_SHORT, _LONG = 8, 8192


def _cut(shapes: Shapes, longest: int, length: int) -> dict[str, tuple[int, ...]]:
    """Return `shapes` with `length` in the place of the second axes that are the `longest`."""
    return {
        name: (shape[0], length, *shape[2:])
        if len(shape) > 1 and shape[1] == longest
        else tuple(shape)
        for name, shape in shapes.items()
    }
