"""Storage types of quantized tensors and the integer grids they offer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import DTypeLike

from octavo.errors import RecipeError, did_you_mean


class QType(Enum):
    """How the numbers of a tensor are stored."""

    INT8 = "int8"
    UINT8 = "uint8"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    @property
    def is_integer(self) -> bool:
        """Whether values are integers with a scale."""
        return self in (QType.INT8, QType.UINT8)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy dtype of one stored value."""
        return np.dtype(self.value)

    @property
    def bytes(self) -> int:
        """Bytes of one stored value."""
        return self.dtype.itemsize

    @classmethod
    def parse(cls, text: str) -> QType:
        """The type called `text`; `RecipeError` names the known ones."""
        try:
            return cls(text)
        except ValueError:
            known = [t.value for t in cls]
            raise RecipeError(f"unknown qtype {text!r}.{did_you_mean(text, known)}") from None


@dataclass(frozen=True)
class Grid:
    """The integers that quantized weights may take: `qmin..qmax` around `zero_point`.

    A symmetric grid has a fixed zero point and as many steps below it as above, so that w and -w
    get integers of the same size; an affine grid has its zero point chosen from the data.
    """

    qmin: int
    qmax: int
    symmetric: bool
    zero_point: int
    dtype: DTypeLike

    @classmethod
    def of(cls, qtype: QType, *, symmetric: bool, reduce_range: bool = False) -> Grid:
        """The grid of an integer `qtype`.

        | | int8 | uint8 |
        |---|---|---|
        | symmetric | -127..127, zero at 0 | 1..255, zero at 128 |
        | affine | -128..127 | 0..255 |
        | symmetric, reduce_range | -64..64, zero at 0 | 0..128, zero at 64 |
        | affine, reduce_range | -64..63 | 0..127 |

        With reduce_range the sum of two products of a weight and a uint8 fits into int16, so that
        kernels that saturate (x86 without VNNI) do not.
        """
        if not qtype.is_integer:
            raise RecipeError(f"a grid needs int8 or uint8, not {qtype.value!r}")
        half = 64 if reduce_range else 127
        zero = 0 if qtype is QType.INT8 else (64 if reduce_range else 128)
        if symmetric:
            return cls(zero - half, zero + half, True, zero, qtype.dtype)
        low = -half - (0 if reduce_range else 1) if qtype is QType.INT8 else 0
        return cls(low, low + (127 if reduce_range else 255), False, 0, qtype.dtype)
