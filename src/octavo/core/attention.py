"""Scaled dot-product attention: `softmax(scale q k^T + bias) v` for every head.

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

`run_attention(addresses, sizes, steps, scale, bias, bias_strides, mask, mask_strides, causal,
offset, window, softcap, sinks, bfloat16, threads)`: `addresses` are those of q, k, v and the
output; `sizes` are batch, heads, kv_heads, queries, keys, depth and value_depth; `steps` are in
elements, of q, k, v and the output for batch, row and head (0 where one serves all). `bias`
(float32) and `mask` (bytes) have strides in elements for batch, head, query and key (0 where they
repeat). 0 stands for no bias, no mask, no window, no softcap, no sinks (a float32 for each head),
and `num_threads()`.
"""

NO_STRIDES = (0, 0, 0, 0)
"""Of a bias or a mask that is not there."""


def attention(
    q: Any,
    k: Any,
    v: Any,
    heads: int,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    threads: int = 0,
    *,
    kv_heads: int | None = None,
    causal: bool = False,
    offset: int = 0,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Any = None,
    bfloat16: bool = False,
) -> Float32:
    """Attention of `q` [B, L, heads * D] to `k` [B, S, kv_heads * D] and `v` [B, S, kv_heads * V].

    All are float32, the result [B, L, heads * V] too.
    `scale` is 1 / sqrt(D) where it is None. `kv_heads` divides `heads` and is `heads` where it is
    None: query head h reads head h // (heads // kv_heads) of `k` and `v`. `bias` (float32) is
    added to the scaled products; `mask` (bool) says which keys count for a query. Either broadcasts
    to [B, heads, L, S]. With `causal` only keys t <= i + offset count for query i, with a `window`
    above 0 only keys t > i + offset - window. A `softcap` above 0 makes
    `softcap * tanh(s / softcap)` of the scaled products. `sinks` (float32 [heads]) are a score of
    each head that takes its share of the weights and has no value. `bfloat16` has more than 16
    queries multiply in bfloat16 (docs/numbers.md). Queries without any key are 0. Raises TypeError
    or ValueError, which name the argument.
    """
    checked_threads(threads)
    kv_heads = heads if kv_heads is None else kv_heads
    for name, number in (("heads", heads), ("kv_heads", kv_heads), ("offset", offset)):
        if type(number) is not int:
            raise TypeError(f"{name}: needs an int, not {number!r}")
    if not isinstance(scale, (int, float, NoneType)):
        raise TypeError(f"scale: needs a float or None, not {scale!r}")
    if type(window) is not int or window < 0:
        raise ValueError(f"window: needs an int of 0 or more, not {window!r}")
    if not isinstance(softcap, (int, float)) or not 0 <= softcap < math.inf:
        raise ValueError(f"softcap: needs a number of 0 or more, not {softcap!r}")
    arrays = {n: array_of(a, n, np.float32) for n, a in (("q", q), ("k", k), ("v", v))}
    b, rows, s, depth, value_depth = _sizes(arrays, heads, kv_heads)
    whole = (b, heads, rows, s)
    added = None if bias is None else array_of(bias, "bias", np.float32)
    counts = None if mask is None else array_of(mask, "mask", np.bool_)
    taken = None if sinks is None else array_of(sinks, "sinks", np.float32)
    if taken is not None and taken.shape != (heads,):
        raise ValueError(f"sinks: needs shape [{heads}], a number for each head, not {taken.shape}")
    out = np.empty((b, rows, heads * value_depth), np.float32)
    run_attention(
        (*(a.ctypes.data for a in arrays.values()), out.ctypes.data),
        (b, heads, kv_heads, rows, s, depth, value_depth),
        (
            *(rows * heads * depth, heads * depth, depth),
            *(s * kv_heads * depth, kv_heads * depth, depth),
            *(s * kv_heads * value_depth, kv_heads * value_depth, value_depth),
            *(rows * heads * value_depth, heads * value_depth, value_depth),
        ),
        1 / math.sqrt(max(depth, 1)) if scale is None else scale,
        *_added(added, "bias", whole),
        *_added(counts, "mask", whole),
        causal,
        offset,
        window,
        softcap,
        0 if taken is None else taken.ctypes.data,
        bfloat16,
        threads,
    )
    return out


def _sizes(arrays: dict[str, Any], heads: int, kv_heads: int) -> tuple[int, int, int, int, int]:
    """Batch, queries, keys, depth and value depth of q, k and v, which fit each other."""
    if kv_heads != heads and (kv_heads < 1 or heads % kv_heads):
        raise ValueError(f"kv_heads: needs a number that divides {heads} heads, not {kv_heads}")
    for name, array in arrays.items():
        own = heads if name == "q" else kv_heads
        if array.ndim != 3 or own < 1 or array.shape[2] % own:
            raise ValueError(
                f"{name}: needs shape [B, length, a multiple of {own} heads], not {array.shape}"
            )
    (b, rows, width), (kb, s, k_width), (vb, vs, v_width) = (a.shape for a in arrays.values())
    depth = width // heads
    if (kb, k_width) != (b, depth * kv_heads):
        wanted = (b, "S", depth * kv_heads)
        raise ValueError(f"k: needs shape {wanted}, as q, not {arrays['k'].shape}")
    if (vb, vs) != (b, s):
        wanted = (b, s, "heads * V" if kv_heads == heads else "kv_heads * V")
        raise ValueError(f"v: needs shape {wanted}, as k, not {arrays['v'].shape}")
    return b, rows, s, depth, v_width // kv_heads


def _added(x: Any, name: str, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Return the address of a bias or a mask, and its strides in elements."""
    if x is None:
        return 0, NO_STRIDES
    try:
        whole = np.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(
            f"{name}: needs a shape that broadcasts to {shape}, not {x.shape}"
        ) from None
    return x.ctypes.data, tuple(stride // x.itemsize for stride in whole.strides)
