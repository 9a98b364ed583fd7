"""Rows for ai.octavo.Norm, and a digest of what it makes of them, for test_norm_op.

The library of operators chooses its instruction set once a process, so each needs one of its own:

    OCTAVO_ISA=avx2 python -m tests.native_target.norm_cases
"""

from __future__ import annotations

import hashlib
from itertools import product

import numpy as np

from tests.native_target.nodes import run

SHAPES = [(3, 48), (1, 768), (2, 5, 37), (7, 1), (9, 16), (4, 2, 3, 64), (13, 515)]
KINDS = ["layer", "rms"]
CASES = [*product(SHAPES, KINDS, [True, False])]


def operands(shape: tuple[int, ...], *, bias: bool) -> dict[str, np.ndarray]:
    """X with rows of very different sizes and means, weight, and bias."""
    rng = np.random.default_rng(sum(shape))
    sizes = np.geomspace(1e-3, 1e3, int(np.prod(shape[:-1]))).reshape(*shape[:-1], 1)
    x = rng.standard_normal(shape) * sizes + rng.standard_normal((*shape[:-1], 1)) * sizes
    made = {"X": x.astype(np.float32), "weight": rng.standard_normal(shape[-1]).astype(np.float32)}
    return made | ({"bias": rng.standard_normal(shape[-1]).astype(np.float32)} if bias else {})


def main() -> None:
    """Prints the digest."""
    digest = hashlib.sha256()
    for shape, kind, bias in CASES:
        digest.update(run("Norm", operands(shape, bias=bias), {}, kind=kind).tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
