"""What runs the kernels: the instruction set, the threads, and the bounds that the silicon sets."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native


def cpu_features() -> list[str]:
    """Instruction sets that this processor has and the operating system lets programs use."""
    return list(_native.cpu_features())


def isas() -> tuple[str, ...]:
    """Names of the kernel tables that this processor runs, the fastest first, "reference" last."""
    return tuple(_native.isas())


def isa() -> str:
    """Return the kernel table in use: OCTAVO_ISA's, else the fastest.

    Raises ValueError, which lists what there is, where OCTAVO_ISA names another.
    """
    return _native.isa()


def use_isa(name: str) -> None:
    """Use the table `name` from here on, in all threads; every table gives the same bits.

    Raises ValueError, which lists what there is, for a name that is not in `isas()`.
    """
    _native.use_isa(name)


def has_bfloat16_products() -> bool:
    """Tell whether the table in use has an instruction for products of bfloat16.

    With one they have twice float32's speed. Where the table has none the products have the same
    bits and take somewhat longer than float32's.
    """
    return _native.has_bfloat16_products()


def num_threads() -> int:
    """Return how many threads a kernel may use where the call does not say: 1 until set."""
    return _native.num_threads()


def set_num_threads(threads: int) -> None:
    """Lets kernels use `threads` threads from here on. Raises ValueError below 1."""
    _native.set_num_threads(checked_threads(threads, least=1))


def checked_threads(threads: int, *, least: int = 0) -> int:
    """Return `threads`, where it is at least `least`; 0 stands for `num_threads()`."""
    if threads < least:
        raise ValueError(f"threads: {threads} must be at least {least}")
    return threads


def thread_backend() -> str:
    """Say which threads do the work: "none" (one thread), "openmp" (PyTorch's) or "pool" (ours)."""
    return _native.thread_backend()


def peak_gops(isa: str, seconds: float = 0.2, threads: int = 1) -> float:
    """Measure the 1e9 int8 operations a second of `threads` threads, without any memory.

    A multiply-accumulate is two operations. The measure is a loop over the registers of one of
    `isas()`, the fastest of many in `seconds`; 0.0 for "reference", which has none. Raises
    ValueError for another name and for no thread.
    """
    checked_threads(threads, least=1)
    return _native.peak_gops(isa, seconds, threads)


def read_gbps(array: npt.NDArray[Any], threads: int = 1) -> float:
    """Measure the 1e9 bytes a second of one plain read of `array` by `threads` threads.

    `array` is contiguous and of any dtype. Raises ValueError for an array that is not C-contiguous.
    """
    if not array.flags.c_contiguous:
        raise ValueError(f"array: strides {array.strides} of shape {array.shape}; needs contiguous")
    checked_threads(threads, least=1)
    return _native.read_gbps(array.reshape(-1).view(np.uint8), threads)


MOST_ELEMENTS = 1 << 32
"""Inputs, outputs or units that `part_seconds` times at most."""


class Part(IntEnum):
    """What a layer does beside its products."""

    ROWS = 0
    """A row's inputs are quantized."""
    OUTPUTS = 1
    """A row's sums are scaled and written with a bias."""
    LSTM_CELLS = 2
    """From the gates of a batch item to its states, for the units of one step."""
    GRU_CELLS = 3


def part_seconds(part: Part, rows: int, columns: int) -> float:
    """Seconds of one part of a layer alone, on one core and over memory that was just used.

    The fastest of several turns, by the kernels in use: `columns` inputs, outputs or hidden units
    of each of `rows`. What no cache holds waits for memory here too. Raises ValueError for another
    part, and where `rows` or `columns` is below 1 or their product above 2^32.
    """
    if rows < 1 or columns < 1 or rows * columns > MOST_ELEMENTS:
        raise ValueError(
            f"rows, columns: {rows}, {columns} must be at least 1, and at most {MOST_ELEMENTS} as "
            "a product"
        )
    return _native.part_seconds(Part(part), rows, columns)
