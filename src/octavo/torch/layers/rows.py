"""Linear layers over rows in tensors: from shapes and strides to addresses."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from octavo.torch import ops
from octavo.torch.memory import LARGE, in_large_pages

Call = Callable[[Tensor], Tensor]


def caller(run: Callable[..., None], n: int, k: int) -> Call:
    """From rows in tensors to a kernel over addresses.

    Each attribute of a tensor costs a tenth of a microsecond and more once caches are cold: as
    much as a small layer's kernel. So what is common comes first, with few of them.
    """
    codes = ops.CODES
    threads = torch.get_num_threads
    large = LARGE // 4 // max(n, 1)

    def call(x: Tensor) -> Tensor:
        code = codes.get(x.dtype)
        shape = x.shape
        if code is None or not shape or shape[-1] != k or not x.is_contiguous():
            return uncommon(x)
        # `new_empty` takes half a microsecond more than with strides.
        if len(shape) == 2:
            rows = shape[0]
            out = x.new_empty_strided((rows, n), (n, 1))
        elif len(shape) == 3:
            batch, length, _ = shape
            rows = batch * length
            out = x.new_empty_strided((batch, length, n), (length * n, n, 1))
        else:
            rows = prod(shape[:-1])
            out = x.new_empty((*shape[:-1], n))
        if rows >= large:
            in_large_pages(out.data_ptr(), out.nbytes)
        run(_address(x), rows, k, out.data_ptr(), n, code, 0, 0, threads())
        return out

    def uncommon(x: Tensor) -> Tensor:
        if x.dtype not in codes:
            if x.dtype is not torch.float64:
                raise ops.allowed(x)
            return call(x.float()).double()
        if not x.dim() or x.shape[-1] != k:
            raise ValueError(f"x: needs shape [..., {k}], not {tuple(x.shape)}")
        if x.dim() != 2 or x.stride(1) != 1 or x.stride(0) < k:
            return call(x.contiguous())
        out = x.new_empty((x.shape[0], n))  # rows with gaps, such as hidden[:, 0]
        stride, code = x.stride(0), codes[x.dtype]
        run(_address(x), x.shape[0], stride, out.data_ptr(), n, code, 0, 0, threads())
        return out

    return call


def _address(x: Tensor) -> int:
    at: int = x.data_ptr()
    if not at and x.numel():
        raise ValueError(f"x: has shape {tuple(x.shape)} and no memory; was its storage resized?")
    return at
