"""Tensors' memory: as arrays, aligned for kernels, large outputs in large pages.

The memory of a new tensor of some megabytes comes from the operating system page by page, while the
kernel writes it: in pages of 4 kB that takes longer than a small layer's arithmetic. NumPy asks for
large pages in the same way and from the same size on.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.core.kernels.packing import ALIGNMENT

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
    """Ask for large pages where memory about to be written has none yet; change no content."""
    if _madvise is None:
        return
    first = -(-address // _HUGE) * _HUGE
    last = (address + size) // _HUGE * _HUGE
    if last > first:
        _madvise(first, last - first, mmap.MADV_HUGEPAGE)


def give_back() -> None:
    """Give memory that the C library keeps for later calls back to the operating system.

    After a model was read that can be a tenth of it. Elsewhere than in glibc nothing is done.
    """
    trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def advise(address: int, size: int, advice: int) -> None:
    """Advise the operating system on memory that begins with a page; the system may refuse."""
    if _madvise is not None:
        _madvise(address, size, advice)


def array(tensor: Tensor) -> npt.NDArray[Any]:
    """Return the tensor's memory as an array aligned for the kernels; copy only if it is not."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.view(torch.uint16)
    tensor = tensor.detach().contiguous()
    if tensor.data_ptr() % ALIGNMENT and tensor.dtype in (torch.uint8, torch.uint16):
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    found: npt.NDArray[Any] = tensor.numpy()
    return found


def optional(tensor: Tensor | None) -> npt.NDArray[Any] | None:
    """Return `array(tensor)`; None for None."""
    return None if tensor is None else array(tensor)


def tensor_of(values: npt.NDArray[Any] | None) -> Tensor | None:
    """Return a tensor over the array's memory; None for None."""
    return None if values is None else torch.from_numpy(np.require(values, requirements=["C", "W"]))


def float32(weight: Tensor) -> Any:
    """Return the weight as a contiguous float32 array; not copied where it is one already."""
    return np.ascontiguousarray(weight.detach().to("cpu", torch.float32).numpy())


def float32_copy(x: Tensor | None) -> Tensor | None:
    """Return `x` as float32 on the CPU, with memory of its own; None for None."""
    return None if x is None else x.detach().to("cpu", torch.float32, copy=True)
