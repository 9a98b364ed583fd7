"""The safetensors container: a JSON header, then the tensors' bytes one after the other.

    8 bytes     length of the header, little endian
    header      {"__metadata__": {...}, name: {"dtype", "shape", "data_offsets"}}, then spaces
    data        without gaps

It is written here so that the data begins at a multiple of 64, and every tensor of which that is
wanted too; and read here so that each tensor has a storage of its own over the mapped file.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from octavo.core.kernels.packing import ALIGNMENT
from octavo.errors import ModelError
from octavo.files.lookup import suggest_file

_CODES: dict[torch.dtype, str] = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}
_HEADER_LIMIT = 100_000_000  # bytes; other readers refuse more
_METADATA = "__metadata__"


def can_hold(dtype: torch.dtype) -> bool:
    """Tell whether the container has a code for `dtype`."""
    return dtype in _CODES


def write(
    file: BinaryIO,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    written: Callable[[int], None] = lambda done: None,
) -> None:
    """Write CPU tensors of any strides to an empty file, each in row-major order.

    Those whose size is a multiple of 64 bytes come first, and so begin at one; the others follow,
    wide elements first. `written` gets the number of tensors written so far. Needs memory for one
    tensor that is not contiguous. Raises OSError.
    """
    names = sorted(tensors, key=lambda name: _rank(tensors[name]))
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for done, name in enumerate(names):
        written(done)
        tensor = tensors[name].detach().resolve_conj().resolve_neg()
        if tensor.numel():
            file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)


def _rank(tensor: Tensor) -> tuple[bool, int]:
    return (tensor.numel() * tensor.element_size()) % ALIGNMENT != 0, -tensor.element_size()


def read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of the file, which is mapped: pages are read when they are used.

    The mapping is private: writing to a tensor changes neither the file nor what other processes
    see. Raises ModelError for what is no whole safetensors file.
    """
    mapped = _map(path)
    metadata, entries, start = _contents(path, mapped)
    tensors = {
        name: _tensor(mapped, dtype, shape, start + first)
        for name, dtype, shape, first, _ in entries
    }
    return metadata, tensors


def read_metadata(path: Path) -> dict[str, str]:
    """Return the file's metadata. Raises ModelError for what is no whole safetensors file."""
    with _map(path) as mapped:
        return _contents(path, mapped)[0]


def _contents(path: Path, mapped: mmap.mmap) -> tuple[dict[str, str], list[_Entry], int]:
    """Metadata, the tensors' entries, and where their data begins."""
    length = int.from_bytes(mapped[:8], "little")
    if length > _HEADER_LIMIT or mapped[8:9] != b"{":
        raise ModelError(f"{path} is no safetensors file; {_WRITTEN_BY}")
    start = 8 + length
    if start > len(mapped):
        raise _cut(path, start, len(mapped))
    header = _header(path, mapped[8:start])
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        raise _damaged(path, f"{_METADATA} is no mapping of names to texts")
    entries = [(name, *_entry(path, name, entry)) for name, entry in header.items()]
    end = start + _contiguous(path, entries)
    if end > len(mapped):
        raise _cut(path, end, len(mapped))
    if end < len(mapped):
        raise _damaged(path, f"{len(mapped) - end} bytes follow its last tensor")
    return metadata, entries, start


_WRITTEN_BY = "octavo.torch.load reads what octavo.torch.save wrote"


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 9:
                raise ModelError(f"{path} is no safetensors file: {size} bytes; {_WRITTEN_BY}")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except FileNotFoundError:
        raise ModelError(
            f"{path}: there is no such file; give one that octavo.torch.save (octavo quantize) "
            f"wrote.{suggest_file(path)}"
        ) from None
    except IsADirectoryError:
        raise ModelError(
            f"{path} is a directory; give a file that octavo.torch.save wrote. from_pretrained of "
            "transformers opens a checkpoint's folder, after import octavo.torch"
        ) from None
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror or error}; give a file that you may read"
        ) from None


def _cut(path: Path, needed: int, found: int) -> ModelError:
    return ModelError(
        f"{path} is cut short: it needs {needed:,} bytes and has {found:,}; copy it again, whole"
    )


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} is damaged: {what}; copy it again, or save the model anew")


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelError(
            f"{path} is no safetensors file, or damaged: its header is no JSON; {_WRITTEN_BY}"
        ) from None
    if not isinstance(header, dict):
        raise ModelError(f"{path} is no safetensors file: its header is no mapping; {_WRITTEN_BY}")
    return header


_Entry = tuple[str, torch.dtype, tuple[int, ...], int, int]


def _entry(path: Path, name: str, entry: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    """dtype, shape, and where the tensor begins and ends, checked against each other."""
    try:
        code, shape = entry["dtype"], tuple(entry["shape"])
        first, last = entry["data_offsets"]
        numbers = (*shape, first, last)
        sizes_are_whole = all(type(n) is int and n >= 0 for n in numbers)
        sizes_are_whole &= type(entry["shape"]) is list
    except (TypeError, KeyError, ValueError):
        sizes_are_whole = False
    if not sizes_are_whole:
        raise _damaged(path, f"the header's entry for {name!r} is {entry!r}")
    if not isinstance(code, str) or code not in _DTYPES:
        raise ModelError(
            f"{path}: {name!r} has dtype {code!r}; known are {', '.join(_DTYPES)}; {_WRITTEN_BY}"
        )
    dtype = _DTYPES[code]
    if last - first != prod(shape) * dtype.itemsize:
        raise _damaged(path, f"{name!r} has {last - first} bytes for {code} {list(shape)}")
    return dtype, shape, first, last


def _contiguous(path: Path, entries: Iterable[_Entry]) -> int:
    """Return where the data ends. Raises ModelError for gaps and overlaps."""
    end = 0
    for name, _, _, first, last in sorted(entries, key=lambda e: e[3:]):
        if first != end:
            raise _damaged(path, f"{name!r} begins at {first}, not at {end}")
        end = last
    return end


def _tensor(mapped: mmap.mmap, dtype: torch.dtype, shape: tuple[int, ...], start: int) -> Tensor:
    count = prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    if start % dtype.itemsize:  # another writer's file: torch wants elements at their multiples
        raw = torch.frombuffer(
            mapped, dtype=torch.uint8, count=count * dtype.itemsize, offset=start
        )
        return raw.clone().view(dtype).view(shape)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=start).view(shape)
