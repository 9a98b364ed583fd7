"""GGUF, the files of llama.cpp: what is in one, by its header alone, and the bytes of a tensor.

magic, version, counts | metadata: keys and values | names, shapes, types, offsets | aligned data
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from octavo.core.packages import need
from octavo.errors import ModelError

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_AGAIN = "copy or download it again, whole"
_ALIGNMENT = 32  # of the data, where the metadata does not say
_STRING, _ARRAY = 8, 9
_VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_VALUES[12] = "d"
_MOST_AXES = 8


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: `shape` as PyTorch has it, outputs first; `kind` of gguf's GGMLQuantizationType.

    `offset` and `bytes` are where it lies in the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    bytes: int


@dataclass(frozen=True)
class StringList:
    """Strings in the metadata, which may be a vocabulary: only how many."""

    count: int


@dataclass(frozen=True)
class GgufFile:
    """A file and its header. `metadata` has numbers, strings, lists of numbers and StringLists."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]

    @property
    def architecture(self) -> str:
        """Return the architecture in llama.cpp's words: "llama", "qwen2", ..."""
        return str(self.metadata.get("general.architecture", "(none)"))

    def read(
        self, tensor: GgufTensor, first: int = 0, last: int | None = None
    ) -> npt.NDArray[np.uint8]:
        """Bytes of its rows `first` .. `last` - 1, uint8 [rows, bytes a row].

        A row is what lies along the last axis. Raises ModelError where they are not there any more.
        """
        rows = prod(tensor.shape[:-1])
        row = tensor.bytes // max(1, rows)
        count = (rows if last is None else last) - first
        data = np.fromfile(self.path, np.uint8, count * row, offset=tensor.offset + first * row)
        if data.size != count * row:
            raise _cut(self.path, f"{tensor.name} lacks {count * row - data.size:,} bytes")
        return data.reshape(count, row)


def open_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Read the header of the GGUF file at `path`.

    Raises ModelError where the package gguf is missing, and for a file that is none, truncated, of
    another byte order or version, or has a tensor of an unknown type (names the tensor).
    """
    need("GGUF files need", "gguf")
    where = Path(path)
    try:
        with where.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise ModelError(f"{where} is empty; {_AGAIN}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Header(where, data, size).read()
    except OSError as error:
        raise ModelError(f"{where} cannot be read: {error.strerror or error}") from error


class _Header:
    """Walks the header of one file; every step stays within it."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self._path, self._data, self._size, self._at = path, data, size, 0

    def read(self) -> GgufFile:
        tensors, entries = self._beginning()
        metadata = {}
        for _ in range(entries):
            key = self._string("a key of the metadata")
            metadata[key] = self._value(self._number("I"), key)
        if metadata.get("split.count", 1) != 1:
            raise ModelError(
                f"{self._path} is one of {metadata['split.count']} parts of a split file; give the "
                "whole one, into which llama-gguf-split of llama.cpp merges them"
            )
        found = [self._tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ModelError(
                f"{self._path} is damaged: general.alignment is {alignment!r}, not a number of "
                "bytes; fetch the file again"
            )
        start = -(-self._at // alignment) * alignment
        placed = tuple(self._placed(start, *tensor) for tensor in found)
        return GgufFile(self._path, metadata, placed)

    def _beginning(self) -> tuple[int, int]:
        """Check how the file begins; return its numbers of tensors and of metadata entries."""
        if self._data[: len(MAGIC)] != MAGIC:
            raise ModelError(
                f"{self._path} is no GGUF file: it begins with {bytes(self._data[:4])!r}, not "
                f"{MAGIC!r}; give a file of llama.cpp"
            )
        self._at = len(MAGIC)
        version = self._number("I")
        if not version & 0xFFFF:
            raise ModelError(
                f"{self._path} is a GGUF file of another byte order (big endian), which this "
                "machine does not read: convert it with gguf-convert-endian"
            )
        if version not in _VERSIONS:
            raise ModelError(
                f"{self._path} is GGUF of version {version}; Octavo reads "
                f"{' and '.join(map(str, _VERSIONS))}: convert the model anew with llama.cpp"
            )
        return self._number("Q"), self._number("Q")

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type and offset behind the header."""
        name = self._string("a tensor's name")
        axes = self._number("I")
        if not 0 < axes <= _MOST_AXES:
            raise ModelError(f"{self._path} is damaged: {name} has {axes} axes; {_AGAIN}")
        shape = tuple(self._number("Q") for _ in range(axes))
        return name, shape[::-1], self._number("I"), self._number("Q")

    def _placed(
        self, start: int, name: str, shape: tuple[int, ...], kind: int, offset: int
    ) -> GgufTensor:
        """Return the tensor, after a check that the file has all of it."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            known = GGMLQuantizationType(kind)
        except ValueError:
            raise ModelError(
                f"{self._path}: {name} is of type {kind}, which the installed gguf does not know; "
                "a newer one may: pip install -U gguf"
            ) from None
        block, block_bytes = GGML_QUANT_SIZES[known]
        if shape[-1] % block:
            raise ModelError(
                f"{self._path} is damaged: {name} has rows of {shape[-1]} in blocks of {block} "
                f"({known.name}); {_AGAIN}"
            )
        size = prod(shape) // block * block_bytes
        if start + offset + size > self._size:
            raise _cut(
                self._path,
                f"{name} ends at byte {start + offset + size:,} of {self._size:,}",
            )
        return GgufTensor(name, shape, known, start + offset, size)

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string(key)
        if kind == _ARRAY:
            inner, count = self._number("I"), self._number("Q")
            if inner in _VALUES:
                return list(self._numbers(_VALUES[inner], count))
            if inner != _STRING:
                raise ModelError(f"{self._path} is damaged: {key} is a list of type {inner}")
            for _ in range(count):
                self._skip(self._number("Q"), key)
            return StringList(count)
        if kind not in _VALUES:
            raise ModelError(f"{self._path} is damaged: {key} is a value of type {kind}; {_AGAIN}")
        return self._number(_VALUES[kind])

    def _string(self, what: str) -> str:
        length = self._number("Q")
        start = self._at
        self._skip(length, what)
        return self._data[start : self._at].decode("utf-8", "replace")

    def _number(self, code: str) -> Any:
        return self._numbers(code, 1)[0]

    def _numbers(self, code: str, count: int) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{code}") * count
        start = self._at
        self._skip(size, "the header")
        return struct.unpack(f"<{count}{code}", self._data[start : self._at])

    def _skip(self, size: int, what: str) -> None:
        if self._at + size > self._size:
            raise _cut(self._path, f"{what} ends behind its {self._size:,} bytes")
        self._at += size


def _cut(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} is cut short: {what}; {_AGAIN}")
