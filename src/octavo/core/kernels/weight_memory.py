"""Memory of packed weights: one behind the other, in large pages where the system has them.

A decoder reads all weights for each token. In pages of 4 kB, of which a processor remembers some
megabytes' worth, it then waits for page tables as long as for weights.
"""

from __future__ import annotations

import mmap
import threading

import numpy as np
import numpy.typing as npt

_REGION = 16 << 20
"""Bytes that are asked for at once; only what is written to takes memory."""
_PAGE = 2 << 20
_LEAST = 64 << 10
"""Bytes from which on a weight lies in a region. What is smaller keeps none alive."""
_ALIGNMENT = 64


class _Regions:
    """Gives out memory of a region, and of a new one when that is used up.

    A region goes when the last weight in it does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region = np.empty(0, np.uint8)
        self._used = 0

    def take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        with self._lock:
            if self._used + nbytes > self._region.size:
                self._region = _new_region(max(nbytes, _REGION))
                self._used = 0
            first = self._used
            self._used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
            return self._region[first : first + nbytes]


def _new_region(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return at least `nbytes` bytes of memory, from the beginning of a large page on."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):  # not Linux
        return _aligned(nbytes, _ALIGNMENT)
    size = -(-nbytes // _PAGE) * _PAGE
    try:
        memory = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for weights of {nbytes} bytes: {error}") from error
    memory.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(memory, np.uint8)
    first = -room.ctypes.data % _PAGE
    return room[first : first + size]


def _aligned(nbytes: int, alignment: int) -> npt.NDArray[np.uint8]:
    room = np.empty(nbytes + alignment, np.uint8)
    first = -room.ctypes.data % alignment
    return room[first : first + nbytes]


_regions = _Regions()


# docs/notes/processors.md: "Weights lie in large pages"
def weight_memory(nbytes: int) -> npt.NDArray[np.uint8]:
    """Allocate memory for a packed weight, uint8 [nbytes], 64-byte aligned; not initialized."""
    return _regions.take(nbytes) if nbytes >= _LEAST else _aligned(nbytes, _ALIGNMENT)
