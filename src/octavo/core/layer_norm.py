"""Layer normalization in float32: rows to mean 0 and variance 1, then `* weight + bias`.

The bits are the same on every instruction set and for every number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octavo import _native
from octavo.core.kernels.buffers import array_of
from octavo.core.kernels.machine import checked_threads
from octavo.core.kernels.packing import Float32

run_layer_norm: Callable[..., None] = _native.layer_norm
"""The rows over addresses, for front ends: no checks, nothing allocated, no Python in between.

`run_layer_norm(x, rows, columns, stride, weight, bias, eps, out, out_stride, threads)`: strides are
in elements from row to row, `out` may be `x`, `threads` 0 means `num_threads()`.
"""


def layer_norm(x: Any, weight: Any, bias: Any, eps: float = 1e-5, threads: int = 0) -> Float32:
    """float32 [..., N] for float32 `x` [..., N], `weight` [N] and `bias` [N].

    The variance is that of the row itself (divided by N); `eps` is added to it. Raises TypeError or
    ValueError, which name the argument.
    """
    checked_threads(threads)
    rows = array_of(x, "x", np.float32)
    if rows.ndim == 0:
        raise ValueError("x: needs shape [..., N], not ()")
    n = rows.shape[-1]
    gain, shift = (
        array_of(weight, "weight", np.float32, (n,)),
        array_of(bias, "bias", np.float32, (n,)),
    )
    out = np.empty(rows.shape, np.float32)
    count = rows.size // n if n else 0
    addresses = gain.ctypes.data, shift.ctypes.data
    run_layer_norm(rows.ctypes.data, count, n, n, *addresses, eps, out.ctypes.data, n, threads)
    return out
