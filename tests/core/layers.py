"""Made-up linear layers and inputs for the kernel tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.core.kernels import PackedWeight, pack
from octavo.core.linear import Linear
from tests.core.statement import Layer


def random_layer(
    n: int,
    k: int,
    *,
    group: int = 0,
    affine: bool = False,
    bias: bool = True,
    activation: str = "none",
    seed: int = 0,
) -> Layer:
    """Integers over the whole range of int8, scales over two decades."""
    r = np.random.default_rng([seed, n, k])
    low = -128 if affine else -127
    return Layer(
        r.integers(low, 128, (n, k)).astype(np.int8),
        (10 ** r.uniform(-3, -1, n) / np.sqrt(k + 1)).astype(np.float32),
        r.integers(-128, 128, n).astype(np.int32) if affine else None,
        r.standard_normal(n).astype(np.float32) if bias else None,
        group,
        activation,
    )


def packed(layer: Layer) -> Linear:
    n, k = layer.q.shape
    weight = PackedWeight(pack(layer.q), n, k, layer.scale, layer.zero, layer.group)
    return Linear.from_packed(weight, layer.bias, layer.activation)


def random_rows(m: int, k: int, seed: int = 1) -> np.ndarray:
    """float32 rows of sizes over six decades, some of one sign."""
    r = np.random.default_rng([seed, m, k])
    x: Any = r.standard_normal((m, k)) * 10 ** r.uniform(-3, 3, (m, 1))
    x[::5] = np.abs(x[::5])
    x[3::5] = -np.abs(x[3::5])
    return x.astype(np.float32)  # type: ignore[no-any-return]
