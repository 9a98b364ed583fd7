"""What a processor's instruction sets mean for int8 arithmetic. Imports nothing but the core."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Any of these makes ONNX Runtime's product of int8 and uint8 exact on x86-64.
VNNI = frozenset({"avx512vnni", "avxvnni", "amxint8"})


def saturates(features: Iterable[str]) -> bool:
    """Whether ONNX Runtime's int8 x uint8 products lose bits here: x86-64 without VNNI."""
    has = set(features)
    return "avx2" in has and not has & VNNI


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0): enough to compare the releases that requirements name."""
    digits = re.split(r"[^\d.]", version)[0].split(".")
    return tuple(int(part) for part in digits if part)
