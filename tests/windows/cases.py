"""What `host.cpp` reads and writes: models with inputs, and what became of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import helper


@dataclass(frozen=True)
class Outcome:
    """The outputs of a model, float32, or what ONNX Runtime said instead."""

    outputs: tuple[np.ndarray, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Case:
    """A model, the threads of its session, its inputs, and what Linux made of them."""

    test: str
    operators: frozenset[str]
    model: bytes
    threads: int
    feeds: dict[str, np.ndarray]
    outcome: Outcome


def integer(value: int) -> bytes:
    return struct.pack("<q", value)


def sized(data: bytes) -> bytes:
    return integer(len(data)) + data


def encoded(case: Case) -> bytes:
    parts = [sized(case.model), integer(case.threads), integer(len(case.feeds))]
    for name, array in case.feeds.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = b"".join(map(integer, array.shape))
        parts += [sized(name.encode()), integer(kind), integer(array.ndim), shape]
        parts.append(sized(np.ascontiguousarray(array).tobytes()))
    return b"".join(parts)


def write_cases(path: Path, cases: Sequence[Case]) -> None:
    with path.open("wb") as file:
        file.write(integer(len(cases)))
        for case in cases:
            file.write(encoded(case))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def integer(self) -> int:
        (value,) = struct.unpack_from("<q", self.data, self.at)
        self.at += 8
        return int(value)

    def bytes(self) -> bytes:
        size = self.integer()
        self.at += size
        return self.data[self.at - size : self.at]


def read_results(path: Path) -> Iterator[Outcome]:
    """One for each case; fewer where the host came to no end."""
    reader = _Reader(path.read_bytes())
    while reader.at < len(reader.data):
        count = reader.integer()
        if count < 0:
            yield Outcome(error=reader.bytes().decode())
            continue
        outputs = []
        for _ in range(count):
            shape = [reader.integer() for _ in range(reader.integer())]
            outputs.append(np.frombuffer(reader.bytes(), np.float32).reshape(shape))
        yield Outcome(tuple(outputs))
