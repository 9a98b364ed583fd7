"""Large outputs in large pages.

The memory of a new tensor of some megabytes comes from the operating system page by page, while the
kernel writes it: in pages of 4 kB that takes longer than a small layer's arithmetic. NumPy asks for
large pages in the same way and from the same size on.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

LARGE = 4 << 20
"""Bytes from which on it pays."""
_HUGE = 2 << 20


def _system_call() -> Callable[[int, int, int], int] | None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):  # not Linux
        return None
    found = ctypes.CDLL(None).madvise
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


_madvise = _system_call()


def in_large_pages(address: int, size: int) -> None:
    """Asks for large pages where memory about to be written has none yet; changes no content."""
    if _madvise is None:
        return
    first = -(-address // _HUGE) * _HUGE
    last = (address + size) // _HUGE * _HUGE
    if last > first:
        _madvise(first, last - first, mmap.MADV_HUGEPAGE)
