"""How many bytes weights take as a target stores them: integers, scales, zero points, offsets."""

from __future__ import annotations

import math
from enum import Enum

from octavo.core.layer import Kind, Layer
from octavo.core.qparams import QType
from octavo.recipe.scheme import Granularity, WeightScheme


class Storage(Enum):
    """Who reads the weights."""

    PACKED = "Octavo's kernels"
    STOCK = "ONNX Runtime's operators"

    def groups(self, n: int, k: int, bits: int, group: int, affine: bool) -> int:
        """Bytes of a weight of `n` outputs in groups along `k` inputs, filled up."""
        count = max(1, -(-k // group))
        if self is Storage.STOCK:  # scales float32
            zeros = -(-count * bits // 8) if affine else 0
            return n * (count * group * bits // 8 + 4 * count + zeros)
        # Blocks of 16 outputs: groups with their scales float16, lines of 64 bytes, then offsets.
        of_group = group * bits // 8 + 2 + (bits / 8 if affine else 0)
        block = -(-int(16 * count * of_group) // 64) * 64 + 64
        return -(-n // 16) * block + 5 * n  # a factor and a zero point for each output


def held_bytes(layer: Layer, weight: WeightScheme | None, storage: Storage) -> int:
    """Return the bytes of the weights of `layer` under `weight` (None: float), or a few more."""
    if weight is None:
        return layer.bytes
    sizes = [_sides(shape, layer.kind) for _, shape in layer.weights]
    return sum(
        max(_matrix_bytes(n, k, weight, storage, layer.kind) for n, k in sides) for sides in sizes
    )


def _sides(shape: tuple[int, ...], kind: Kind) -> list[tuple[int, int]]:
    """Return (outputs, inputs) in each order that the axes may have: only front ends know which."""
    elements = math.prod(shape)
    if kind is Kind.CONV:
        return [(shape[0], elements // max(1, shape[0]))]
    return [(elements // max(1, k), k) for k in shape[-2:]] if len(shape) > 1 else [(1, elements)]


def _matrix_bytes(n: int, k: int, w: WeightScheme, storage: Storage, kind: Kind) -> int:
    if w.qtype is QType.FLOAT16:
        return 2 * n * k
    if w.granularity is Granularity.BLOCK and w.block is not None:
        bits = 4 if w.qtype is QType.INT4 else 8
        return storage.groups(n, k, bits, w.block, not w.symmetric)
    if storage is Storage.STOCK:
        return n * (k + 5)  # scale and zero point
    if kind is Kind.EMBEDDING:  # rows as they are, each with scale and zero point
        return n * (k + 8)
    scales = 5 * n if w.symmetric else 8 * n  # and zero points: a file has them in any case
    return -(-n // 16) * 16 * -(-k // 4) * 4 + scales
