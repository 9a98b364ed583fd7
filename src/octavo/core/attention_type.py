"""What attention multiplies in: a choice of the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class AttentionType(Enum):
    """Of `q k^T` and `weights v`; sums and exponentials are float32 either way."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Of more than a few queries (docs/numbers.md): half the time, an error of some thousandths."""

    @classmethod
    def stated(cls, said: Mapping[str, Any], key: str = "attention") -> AttentionType:
        """Return what a recipe or a file's metadata has under `key`; float32 where nothing."""
        return cls.BFLOAT16 if said.get(key) == cls.BFLOAT16.value else cls.FLOAT32


METADATA = "octavo.attention"
"""Of an ONNX file: the recipe's, where it is not float32."""
