"""What no layer can be faster than on this machine, whatever its kernels are.

A call costs what the same module costs over a few weights. A product takes the longer of its
operations at the processor's peak and of one plain read of its weights, where a loop of reads finds
them. Nothing else is counted: not the quantization, the activations, the outputs or a cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from benchmarks import ours
from benchmarks.timing import Comparison, Timing

CALL, LIMIT = "a call", "limit"
READS = 20  # the fastest of them counts
PEAK_SECONDS = 0.1


@cache
def read_gbps(size: int, threads: int) -> float:
    """1e9 bytes a second of reading `size` bytes once more, where they lie after that."""
    plain = np.ones(size, np.uint8)
    return max(ours.read_gbps(plain, threads) for _ in range(READS))


@cache
def peak_gops() -> float:
    """1e9 int8 operations a second of one core, on the instruction set in use."""
    return ours.peak_gops(ours.isa(), PEAK_SECONDS)


def product(rows: int, k: int, n: int, threads: int = 1) -> float:
    """Seconds of [rows, k] int8 by [k, n] int8."""
    operations = 2 * rows * k * n / (peak_gops() * 1e9 * threads)
    return max(operations, k * n / (read_gbps(k * n, threads) * 1e9))


def limited(compared: Comparison, products: Iterable[float]) -> Comparison:
    """`compared`, which timed CALL, with LIMIT: a call and the seconds of `products`."""
    call, least = compared[CALL], sum(products)
    limit = Timing(tuple(seconds + least for seconds in call.seconds), (1.0,) * len(call.seconds))
    return Comparison({**compared.timings, LIMIT: limit})
