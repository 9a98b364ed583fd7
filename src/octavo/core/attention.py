"""Scaled dot-product attention in float32: `softmax(scale q k^T + bias) v` for every head.

Query, key and value lie as linear layers leave them, `[batch, length, heads * size]`, so that
nothing is turned before or after. The bits are the same on every instruction set, for every number
of threads, and whatever the other items of the batch are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np

from octavo import _native
from octavo.core.kernels.buffers import array_of
from octavo.core.kernels.machine import checked_threads
from octavo.core.kernels.packing import Float32

run_attention: Callable[..., None] = _native.attention
"""Attention over addresses, for front ends: no checks, nothing allocated, no Python in between.

`run_attention(q, k, v, out, sizes, strides, scale, bias, mask, threads)`: `sizes` are batch, heads,
queries, keys, depth and value_depth; `strides` are in elements, of q, k and v from item to item (0
where one serves all), then of `bias` (float32) or `mask` (bytes) for batch, head, query and key (0
where they repeat). 0 stands for no bias, no mask, and `num_threads()`.
"""


def attention(
    q: Any,
    k: Any,
    v: Any,
    heads: int,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    threads: int = 0,
) -> Float32:
    """Attention of `q` [B, L, heads * D] to `k` [B, S, heads * D] and `v` [B, S, heads * V].

    All are float32, the result [B, L, heads * V] too.
    `scale` is 1 / sqrt(D) where it is None. `bias` (float32) is added to the scaled products;
    `mask` (bool) says which keys count for a query. Either broadcasts to [B, heads, L, S]. Queries
    without any key are 0. Raises TypeError or ValueError, which name the argument.
    """
    checked_threads(threads)
    if type(heads) is not int:
        raise TypeError(f"heads: needs an int, not {heads!r}")
    if not isinstance(scale, (int, float, NoneType)):
        raise TypeError(f"scale: needs a float or None, not {scale!r}")
    arrays = {n: array_of(a, n, np.float32) for n, a in (("q", q), ("k", k), ("v", v))}
    for name, array in arrays.items():
        if array.ndim != 3 or heads < 1 or array.shape[2] % heads:
            raise ValueError(
                f"{name}: needs shape [B, length, a multiple of {heads} heads], not {array.shape}"
            )
    (b, rows, width), (kb, s, k_width), (vb, vs, v_width) = (a.shape for a in arrays.values())
    if (kb, k_width) != (b, width):
        raise ValueError(f"k: needs shape {(b, 'S', width)}, as q, not {arrays['k'].shape}")
    if (vb, vs) != (b, s):
        raise ValueError(f"v: needs shape {(b, s, 'heads * V')}, as k, not {arrays['v'].shape}")
    if bias is not None and mask is not None:
        raise ValueError("mask: give it or bias, not both; -inf in bias hides a key too")
    added = None if bias is None else array_of(bias, "bias", np.float32)
    counts = None if mask is None else array_of(mask, "mask", np.bool_)
    over = _strides(added if counts is None else counts, (b, heads, rows, s), added is None)
    out = np.empty((b, rows, v_width), np.float32)
    depth = width // heads
    run_attention(
        *(a.ctypes.data for a in arrays.values()),
        out.ctypes.data,
        (b, heads, rows, s, depth, v_width // heads),
        (rows * width, s * width, s * v_width, *over),
        1 / math.sqrt(max(depth, 1)) if scale is None else scale,
        0 if added is None else added.ctypes.data,
        0 if counts is None else counts.ctypes.data,
        threads,
    )
    return out


def _strides(x: Any, shape: tuple[int, ...], mask: bool) -> tuple[int, ...]:
    if x is None:
        return (0, 0, 0, 0)
    try:
        whole = np.broadcast_to(x, shape)
    except ValueError:
        name = "mask" if mask else "bias"
        raise ValueError(
            f"{name}: needs a shape that broadcasts to {shape}, not {x.shape}"
        ) from None
    return tuple(stride // x.itemsize for stride in whole.strides)
