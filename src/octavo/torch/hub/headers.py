"""What safetensors files hold, by their headers alone: no tensor is read.

model.safetensors              one file
model.safetensors.index.json   {"weight_map": {name: file}}: several, its shards
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from octavo.errors import ModelError
from octavo.files.checkpoints import AGAIN, weight_files

_LIMIT = 100_000_000  # bytes of a header; the format allows no more


@dataclass(frozen=True)
class StoredTensor:
    """One tensor: `dtype` is the format's code ("F32", "BF16"), `bytes` its size in the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    file: str


def stored_tensors(folder: Path) -> tuple[StoredTensor, ...]:
    """List the tensors of a checkpoint's weights, in the order of its files.

    Raises ModelError where there are none, a shard that the index names is missing, or a file is
    cut short or no safetensors file.
    """
    found: dict[str, StoredTensor] = {}
    for path in weight_files(folder):
        found.update((tensor.name, tensor) for tensor in file_tensors(path))
    return tuple(found.values())


def file_tensors(path: Path) -> list[StoredTensor]:
    """List the tensors of one file. Raises ModelError as `stored_tensors` does."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 9 or length > _LIMIT:
            raise ModelError(f"{path} is no safetensors file ({size:,} bytes); {AGAIN}")
        text = file.read(length)
    if len(text) < length:
        raise _cut(path, 8 + length, size)
    try:
        header = dict(json.loads(text))
        header.pop("__metadata__", None)
        found = [_tensor(name, entry, path.name) for name, entry in header.items()]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise ModelError(f"{path} is no safetensors file: its header is damaged; {AGAIN}") from None
    end = 8 + length + max((last for _, last in found), default=0)
    if end > size:
        raise _cut(path, end, size)
    return [tensor for tensor, _ in found]


def _tensor(name: str, entry: Any, file: str) -> tuple[StoredTensor, int]:
    """Return the tensor that `entry` describes, and where its data ends behind the header."""
    first, last = map(int, entry["data_offsets"])
    shape = tuple(map(int, entry["shape"]))
    if (
        type(entry["shape"]) is not list
        or not 0 <= first <= last
        or (prod(shape) == 0) != (first == last)
    ):
        raise ValueError(name)
    return StoredTensor(name, shape, str(entry["dtype"]), last - first, file), last


def _cut(path: Path, needed: int, found: int) -> ModelError:
    return ModelError(f"{path} is cut short: it needs {needed:,} bytes and has {found:,}; {AGAIN}")
