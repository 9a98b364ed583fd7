"""Prints a digest of what ai.octavo.MatMul computes, for test_matmul_op.

The library of operators chooses its instruction set once a process, so each needs one of its own:

    OCTAVO_ISA=avx2 python -m tests.native_target.matmul_bits
"""

from __future__ import annotations

import hashlib

import numpy as np

from tests.native_target.nodes import run

SHAPES = [
    ((1, 1), (1, 1)),
    ((5, 7), (7, 3)),
    ((3, 33, 64), (3, 64, 37)),
    ((2, 3, 40, 130), (3, 130, 48)),
    ((70, 200), (200, 161)),
    ((2, 33000), (33000, 17)),
]


def operands(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of sizes over four decades; some rows and columns are 0, some not finite."""
    r = np.random.default_rng([*a, *b])
    x = r.standard_normal(a) * 10 ** r.uniform(-2, 2, (*a[:-1], 1))
    y = r.standard_normal(b) * 10 ** r.uniform(-2, 2, (*b[:-2], 1, b[-1]))
    y[..., :, 1::7] = 0
    if a[-2] > 4 and b[-1] > 4:
        x[..., 2, 0], y[..., 1, 3], y[..., 0, 4] = np.inf, np.nan, -np.inf
    return x.astype(np.float32), y.astype(np.float32)


def main() -> None:
    """Prints the digest."""
    digest = hashlib.sha256()
    for a_shape, b_shape in SHAPES:
        a, b = operands(a_shape, b_shape)
        turned = np.ascontiguousarray(b.swapaxes(-1, -2))
        for y in (
            run("MatMul", {"A": a, "B": b}, {}),
            run("MatMul", {"A": a, "B": turned}, {}, transpose_b=1),
        ):
            digest.update(np.where(np.isnan(y), np.float32(0), y).tobytes())
            digest.update(np.isnan(y).tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
