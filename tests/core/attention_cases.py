"""Attentions of every shape, and what goes into them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Case(NamedTuple):
    """Sizes of an attention, and the shape of its bias."""

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    value_depth: int
    bias: tuple[int, ...] | None = None


CASES = [
    Case(1, 1, 1, 1, 1, 1),
    Case(1, 12, 8, 8, 32, 32, (1, 1, 8, 8)),
    Case(2, 3, 70, 33, 20, 17, (2, 1, 1, 33)),
    Case(2, 2, 128, 128, 64, 64, (2, 1, 128, 128)),
    Case(2, 2, 1, 5, 64, 64),
    Case(1, 4, 65, 64, 16, 48, (4, 65, 64)),
    Case(3, 1, 129, 200, 7, 5, (3, 1, 129, 1)),
    Case(1, 2, 16, 300, 32, 32, (16, 300)),
]


def operands(case: Case) -> dict[str, np.ndarray]:
    """Q, K, V and the bias, which hides half of the keys as exporters do it."""
    r = np.random.default_rng([*case[:6]])
    b, h, s, t, d, e, bias = case
    shapes = {"Q": (b, s, h * d), "K": (b, t, h * d), "V": (b, t, h * e)}
    found = {name: r.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if bias is not None:
        hidden = r.random(bias) < 0.5
        added = r.standard_normal(bias)
        found["bias"] = np.where(hidden, np.finfo(np.float32).min, added).astype(np.float32)
    return found
