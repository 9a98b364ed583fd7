"""What no layer can be faster than on this machine, and what bounds one of ours.

LIMIT holds whatever the kernels are. A call costs what the same module costs over a few weights. A
product takes the longer of its operations at the processor's peak and of one plain read of its
weights, where a loop of reads finds them. Nothing else is counted.

PARTS adds what the numbers ask for besides: rows quantized, sums scaled and written, cells, each by
our own kernel alone, over memory that it has just used. It is a sum, not a bound: parts overlap and
take less. What a layer takes beyond it is waiting: for memory that others used meanwhile, for what
depends on the step before, and on several threads for the other ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from benchmarks import ours
from benchmarks.ours import Part
from octavo.measure.timing import Comparison, Timing

CALL, LIMIT, PARTS = "a call", "limit", "all parts"
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


part_seconds = cache(ours.part_seconds)


def beside(rows: int, k: int, n: int, threads: int = 1) -> float:
    """Seconds of what surrounds a product: [rows, k] quantized, [rows, n] scaled and written."""
    return (part_seconds(Part.ROWS, rows, k) + part_seconds(Part.OUTPUTS, rows, n)) / threads


def limited(compared: Comparison, products: Iterable[float], others: Iterable[float]) -> Comparison:
    """`compared`, which timed CALL, with LIMIT (CALL and `products`) and PARTS (and `others`)."""
    least = sum(products)
    more = {LIMIT: least, PARTS: least + sum(others)}
    call = compared[CALL].seconds
    limits = {
        name: Timing(tuple(seconds + added for seconds in call), (1.0,) * len(call))
        for name, added in more.items()
    }
    return Comparison({**compared.timings, **limits})
