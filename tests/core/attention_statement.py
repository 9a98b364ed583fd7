"""What attention is, in float64, and calls of the kernel over memory that lies anyhow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.core.attention import NO_STRIDES, run_attention

GAP = np.float32(173.0)


@dataclass(frozen=True)
class Fields:
    """Q [B, H, S, D], K [B, G, T, D] and V [B, G, T, E], any strides, and all that acts on them."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scale: float = 0.25
    bias: np.ndarray | None = None
    mask: np.ndarray | None = None
    causal: bool = False
    offset: int = 0
    window: int = 0
    softcap: float = 0.0
    sinks: np.ndarray | None = None
    bfloat16: bool = False
    out_shape: tuple[int, ...] = field(default=())
    """The output's memory; empty: [B, S, H, E] side by side."""

    def stated(self) -> np.ndarray:
        """[B, H, S, E] in float64; rows without keys are 0."""
        q, k, v = (x.astype(np.float64) for x in (self.q, self.k, self.v))
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat(group, 1), v.repeat(group, 1)
        scores = q @ k.swapaxes(-1, -2) * self.scale
        if self.softcap:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if self.bias is not None:
            scores = scores + self.bias
        counted = np.broadcast_to(self._counted(*scores.shape[-2:]), scores.shape)
        scores = np.where(counted, scores, -np.inf)
        largest = scores.max(-1, keepdims=True, initial=-1e300)
        sinks = np.full(q.shape[1], -np.inf) if self.sinks is None else self.sinks
        sunk = np.broadcast_to(sinks[:, None, None].astype(np.float64), largest.shape)
        largest = np.maximum(largest, sunk)
        weights = np.exp(scores - largest)
        total = weights.sum(-1, keepdims=True) + np.exp(sunk - largest)
        return weights @ v / np.where(total == 0, 1, total)  # type: ignore[no-any-return]

    def _counted(self, queries: int, keys: int) -> np.ndarray:
        i, t = np.arange(queries)[:, None] + self.offset, np.arange(keys)
        counted = np.ones((queries, keys), bool)
        if self.causal:
            counted &= t <= i
        if self.window:
            counted &= t > i - self.window
        return counted if self.mask is None else counted & self.mask

    def run(self, threads: int = 1) -> np.ndarray:
        """[B, H, S, E] of the kernel, a view of memory whose gaps nothing has written."""
        b, h, s, _ = self.q.shape
        t, e = self.v.shape[2:]
        memory = np.full(self.out_shape or (b, s, h, e), GAP)
        out = memory[:b, :s, :h, :e].swapaxes(1, 2)
        run_attention(
            tuple(x.ctypes.data for x in (self.q, self.k, self.v, out)),
            (b, h, self.k.shape[1], s, t, self.q.shape[3], e),
            tuple(step for x in (self.q, self.k, self.v, out) for step in _steps(x)),
            self.scale,
            *_over(self.bias, (b, h, s, t)),
            *_over(self.mask, (b, h, s, t)),
            self.causal,
            self.offset,
            self.window,
            self.softcap,
            0 if self.sinks is None else self.sinks.ctypes.data,
            self.bfloat16,
            threads,
        )
        found = out.copy()
        out[...] = GAP
        assert (memory == GAP).all(), "it wrote between the rows"
        return found


def _steps(x: np.ndarray) -> tuple[int, int, int]:
    batch, head, row, _ = (stride // x.itemsize for stride in x.strides)
    return batch, row, head


def _over(x: np.ndarray | None, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    if x is None:
        return 0, NO_STRIDES
    strides = np.broadcast_to(x, shape).strides
    return x.ctypes.data, tuple(stride // x.itemsize for stride in strides)


def random(
    *sizes: int, kv_heads: int | None = None, value_depth: int | None = None, **fields: Any
) -> Fields:
    b, h, s, t, d = sizes
    g, e = kv_heads or h, value_depth or d
    r = np.random.default_rng([*sizes, g, e])
    shapes = ((b, h, s, d), (b, g, t, d), (b, g, t, e))
    q, k, v = (r.standard_normal(shape).astype(np.float32) for shape in shapes)
    return Fields(q, k, v, **{"scale": d**-0.5, **fields})
