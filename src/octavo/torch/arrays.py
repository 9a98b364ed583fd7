"""Tensors and arrays over the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.core.kernels.packing import ALIGNMENT


def array(tensor: Tensor) -> npt.NDArray[Any]:
    """The tensor's memory as an array, aligned for the kernels; a copy only where it is not."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.view(torch.uint16)
    tensor = tensor.detach().contiguous()
    if tensor.data_ptr() % ALIGNMENT and tensor.dtype in (torch.uint8, torch.uint16):
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    found: npt.NDArray[Any] = tensor.numpy()
    return found


def optional(tensor: Tensor | None) -> npt.NDArray[Any] | None:
    """`array`, None for None."""
    return None if tensor is None else array(tensor)


def tensor_of(values: npt.NDArray[Any] | None) -> Tensor | None:
    """A tensor over the array's memory; None for None."""
    return None if values is None else torch.from_numpy(np.require(values, requirements=["C", "W"]))


def float32(weight: Tensor) -> Any:
    """The weight as a contiguous float32 array; not copied where it is one already."""
    return np.ascontiguousarray(weight.detach().to("cpu", torch.float32).numpy())


def float32_copy(x: Tensor | None) -> Tensor | None:
    """`x` as float32 on the CPU, with memory of its own; None for None."""
    return None if x is None else x.detach().to("cpu", torch.float32, copy=True)
