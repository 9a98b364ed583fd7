"""Recurrent layers stated plainly: one step in float64, and layers as loops over such steps.

Rows of x and h are quantized apart, as `statement.quantize_rows` says; sums are exact; what follows
is float64. A step begins with a float32 state, so that one rounding cannot become another integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from tests.core import statement

GATES = {"lstm": 4, "gru": 3, "gru_reset": 3, "tanh": 1, "relu": 1}
KINDS = tuple(GATES)


@dataclass(frozen=True)
class Direction:
    """Weights of one direction, float32, gates in PyTorch's order; `w_hr` projects an LSTM's h."""

    kind: str
    hidden: int
    w_ih: np.ndarray
    w_hh: np.ndarray
    b_ih: np.ndarray | None = None
    b_hh: np.ndarray | None = None
    w_hr: np.ndarray | None = None
    floating: bool = False
    clip: float = 0.0

    @property
    def output(self) -> int:
        return self.hidden if self.w_hr is None else len(self.w_hr)

    def flat(self) -> list[np.ndarray]:
        found = (self.w_ih, self.w_hh, self.b_ih, self.b_hh, self.w_hr)
        return [array for array in found if array is not None]

    def product(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """`x` [B, K] by `w` [N, K], float64 [B, N]."""
        if self.floating:
            return x.astype(np.float64) @ w.T.astype(np.float64)
        scale = np.abs(w).max(axis=1) / np.float32(127)
        scale = np.where(scale > 0, scale, np.float32(1))
        q, row_scale, zero = statement.quantize_rows(x.astype(np.float32))
        sums = (q.astype(np.int64) - zero).astype(np.float64) @ np.rint(
            w / scale[:, None]
        ).T.astype(np.float64)
        return sums * row_scale.astype(np.float64) * scale.astype(np.float64)

    def bounded(self, x: np.ndarray) -> np.ndarray:
        return np.clip(x, -self.clip, self.clip) if self.clip else x

    def step(self, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(h, c) after `x` [B, I], from float32 `h` [B, output] and `c` [B, hidden]."""
        rows = np.zeros(len(self.w_ih))
        b_ih, b_hh = (rows if b is None else b.astype(np.float64) for b in (self.b_ih, self.b_hh))
        a, n = self.product(x, self.w_ih) + b_ih, self.hidden
        if self.kind == "gru_reset":
            b = self.product(h, self.w_hh[: 2 * n])
            rz = expit(self.bounded(a[:, : 2 * n] + b + b_hh[: 2 * n]))
            r, z = rz[:, :n], rz[:, n:]
            again = self.product((r * h).astype(np.float32), self.w_hh[2 * n :]) + b_hh[2 * n :]
            new = np.tanh(self.bounded(a[:, 2 * n :] + again))
            return (1 - z) * new + z * h, c
        b = self.product(h, self.w_hh) + b_hh
        if self.kind == "lstm":
            i, f, g, o = np.split(self.bounded(a + b), 4, axis=1)
            c = expit(f) * c + expit(i) * np.tanh(g)
            out = expit(o) * np.tanh(c)
            if self.w_hr is not None:
                out = self.product(out.astype(np.float32), self.w_hr)
            return out, c
        if self.kind == "gru":
            rz = expit(self.bounded((a + b)[:, : 2 * n]))
            r, z = rz[:, :n], rz[:, n:]
            new = np.tanh(self.bounded(a[:, 2 * n :] + r * b[:, 2 * n :]))
            return (1 - z) * new + z * h, c
        new = self.bounded(a + b)
        return (np.tanh(new) if self.kind == "tanh" else np.maximum(new, 0)), c


@dataclass(frozen=True)
class Shape:
    """What a network is made of; `make` draws its weights."""

    kind: str
    inputs: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    proj: int = 0
    bias: bool = True
    floating: tuple[Any, ...] = ()
    clip: float = 0.0
    directions: list[list[Direction]] = field(default_factory=list, compare=False, repr=False)

    @property
    def ways(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output(self) -> int:
        return self.proj or self.hidden

    def is_float(self, layer: int, way: int) -> bool:
        return layer in self.floating or (layer, way) in self.floating

    def make(self, seed: int = 0) -> Shape:
        r = np.random.default_rng([seed, self.hidden, self.inputs])
        rows, bound = GATES[self.kind] * self.hidden, 1.5 / np.sqrt(self.hidden)

        def draw(*shape: int) -> np.ndarray:
            return r.uniform(-bound, bound, shape).astype(np.float32)  # type: ignore[no-any-return]

        for layer in range(self.layers):
            width = self.inputs if layer == 0 else self.ways * self.output
            self.directions.append(
                [
                    Direction(
                        self.kind,
                        self.hidden,
                        draw(rows, width),
                        draw(rows, self.output),
                        draw(rows) if self.bias else None,
                        draw(rows) if self.bias else None,
                        draw(self.proj, self.hidden) if self.proj else None,
                        self.is_float(layer, way),
                        self.clip,
                    )
                    for way in range(self.ways)
                ]
            )
        return self

    def flat(self) -> list[np.ndarray]:
        return [w for layer in self.directions for way in layer for w in way.flat()]


Step = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def run(
    steps: Sequence[Sequence[Step]],
    x: np.ndarray,
    h0: np.ndarray,
    c0: np.ndarray,
    lengths: Sequence[int],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Layers as loops over single steps of single items: `steps[layer][way](x, h, c)`."""
    h, c, count = h0.copy(), c0.copy(), 0
    for layer in steps:
        outs = []
        for way, step in enumerate(layer):
            y = np.zeros((*x.shape[:2], h.shape[2]), h.dtype)
            for b, length in enumerate(lengths):
                for t in range(length) if way == 0 else reversed(range(length)):
                    h[count, b : b + 1], c[count, b : b + 1] = step(
                        x[t, b : b + 1], h[count, b : b + 1], c[count, b : b + 1]
                    )
                    y[t, b] = h[count, b]
            outs.append(y)
            count += 1
        x = np.concatenate(outs, axis=2)
    return x, h, c
