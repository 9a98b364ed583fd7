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

from octavo.errors import ModelError, listed

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_LIMIT = 100_000_000  # bytes of a header; the format allows no more
_AGAIN = "copy or download it again, whole"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor: `dtype` is the format's code ("F32", "BF16"), `bytes` its size in the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    file: str


def stored_tensors(folder: Path) -> tuple[StoredTensor, ...]:
    """The tensors of a checkpoint's weights, in the order of its files.

    Raises ModelError where there are none, a shard that the index names is missing, or a file is
    cut short or no safetensors file.
    """
    found: dict[str, StoredTensor] = {}
    for path in weight_files(folder):
        found.update((tensor.name, tensor) for tensor in file_tensors(path))
    return tuple(found.values())


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint. Raises ModelError where one is missing."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        raise ModelError(_without_weights(folder))
    try:
        named = json.loads(index.read_text("utf-8"))["weight_map"]
        shards = list(dict.fromkeys(map(str, named.values())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{index} is damaged: it has no weight_map of names to files ({error}); {_AGAIN}"
        ) from None
    missing = [name for name in shards if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{index} names {len(shards)} shards, of which {len(missing)} are missing: "
            f"{listed(missing, 3)}; copy or download them into {folder}"
        )
    return [folder / name for name in shards]


def _without_weights(folder: Path) -> str:
    others = sorted(
        p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".gguf")
    )
    needed = f"{folder} holds no {WEIGHTS} and no {INDEX}"
    if not others:
        return f"{needed}: its weights are missing; copy or download them into it"
    return (
        f"{needed}; its weights are in {listed(others, 3)}, which need code of other libraries to "
        "be read. Save them anew: AutoModel.from_pretrained(folder).save_pretrained(another)"
    )


def file_tensors(path: Path) -> list[StoredTensor]:
    """The tensors of one file. Raises ModelError as `stored_tensors` does."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 9 or length > _LIMIT:
            raise ModelError(f"{path} is no safetensors file ({size:,} bytes); {_AGAIN}")
        text = file.read(length)
    if len(text) < length:
        raise _cut(path, 8 + length, size)
    try:
        header = dict(json.loads(text))
        header.pop("__metadata__", None)
        found = [_tensor(name, entry, path.name) for name, entry in header.items()]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelError(
            f"{path} is no safetensors file: its header is damaged; {_AGAIN}"
        ) from None
    end = 8 + length + max((last for _, last in found), default=0)
    if end > size:
        raise _cut(path, end, size)
    return [tensor for tensor, _ in found]


def _tensor(name: str, entry: Any, file: str) -> tuple[StoredTensor, int]:
    """The tensor, and where its data ends behind the header."""
    first, last = map(int, entry["data_offsets"])
    shape = tuple(map(int, entry["shape"]))
    if not 0 <= first <= last or (prod(shape) == 0) != (first == last):
        raise ValueError(name)
    return StoredTensor(name, shape, str(entry["dtype"]), last - first, file), last


def _cut(path: Path, needed: int, found: int) -> ModelError:
    return ModelError(f"{path} is cut short: it needs {needed:,} bytes and has {found:,}; {_AGAIN}")
