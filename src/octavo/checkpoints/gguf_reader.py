"""The metadata of a GGUF file as transformers asks the package gguf for it, without vocabularies.

gguf's own reader makes several objects of each word: of a vocabulary of 260,000 words that takes 20
seconds and three times the memory of a small model. A model's configuration needs their number.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.checkpoints.gguf_file import GgufTensor, StringList, open_gguf

_INTEGER, _FLOAT, _BOOL, _STRING, _ARRAY = 11, 12, 7, 8, 9  # types of values, in the file format


@dataclass(frozen=True)
class _Field:
    """One entry: `data` has places in `parts`, each of which is a value as `types` say."""

    types: list[int]
    parts: Sequence[Any]
    data: Sequence[int]


class _Words(Sequence[Any]):
    """As many words as asked for, all empty."""

    def __getitem__(self, index: Any) -> bytes:
        return b""

    def __len__(self) -> int:
        return 0


class LightReader:
    """Stands for `gguf.GGUFReader` where nothing but metadata and names of tensors is read."""

    def __init__(self, path: str | os.PathLike[str], mode: str = "r") -> None:
        found = open_gguf(path)
        self.tensors: tuple[GgufTensor, ...] = found.tensors
        self.fields = {key: _field(value) for key, value in found.metadata.items()}


def _field(value: Any) -> _Field:
    if isinstance(value, StringList):
        return _Field([_ARRAY, _STRING], _Words(), range(value.count))
    if isinstance(value, list):
        kind = _kind(value[0]) if value else _INTEGER
        return _Field([_ARRAY, kind], [[one] for one in value], range(len(value)))
    kind = _kind(value)
    return _Field([kind], [value.encode() if kind == _STRING else [value]], [0])


def _kind(value: Any) -> int:
    kinds = {bool: _BOOL, int: _INTEGER, float: _FLOAT, str: _STRING}
    return kinds[type(value)]


_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def light_reader() -> Iterator[None]:
    """Has transformers read metadata so meanwhile; it looks the reader up in each call."""
    import gguf

    with _one_at_a_time:
        plain = gguf.GGUFReader
        gguf.GGUFReader = LightReader  # type: ignore[misc, assignment]
        try:
            yield
        finally:
            gguf.GGUFReader = plain  # type: ignore[misc]
