"""Integers in words of 32 bits, packed as GPTQ and AWQ publish it."""

from __future__ import annotations

from typing import Any

import numpy as np

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(values: Any, order: list[int] | None = None, bits: int = 4) -> Any:
    """uint8 [rows, integers] to int32 [rows, words]: the first of a word in its lowest bits."""
    per_word = 32 // bits
    parts = values.reshape(len(values), -1, per_word).astype(np.uint32)
    found = np.zeros(parts.shape[:2], np.uint32)
    for place, which in enumerate(order or range(per_word)):
        found |= parts[..., which] << np.uint32(bits * place)
    return found.view(np.int32)
