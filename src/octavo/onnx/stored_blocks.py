"""Weights that a file holds in blocks along their inputs, as the float weight that they stand for.

A layer that is quantized takes the integers as they are, in groups of kernels: `grouped`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import GroupedWeight, WeightFormat
from octavo.errors import ModelError
from octavo.graph.lower.blocks import BlockIntegers
from octavo.recipe.scheme import GROUPS

LEAST, MOST = np.float32(2.0**-11), np.float32(2.0**14)
"""Of the largest scale of a row as float16: smaller ones then have all of its bits, too."""


@dataclass(frozen=True)
class Grouped:
    """A weight in groups of kernels; `rounded` scales are not the file's, but their float16."""

    weight: GroupedWeight
    rounded: int


def group_length(block: int, k: int) -> int | None:
    """Return the longest kernel group that makes up blocks of `block` of `k` inputs, if any."""
    if block < 1:
        return None
    if block >= k:  # a scale for each row
        return next((g for g in GROUPS if g >= k), GROUPS[-1])
    return next((g for g in GROUPS[::-1] if block % g == 0), None)


class StoredBlocks(ir.LazyTensor):
    """A weight [n, k] in blocks, made when somebody asks for it and never kept."""

    def __init__(
        self,
        make: Callable[[], BlockIntegers],
        shape: tuple[int, int],
        weight_format: WeightFormat,
        *,
        dtype: ir.DataType,
        name: str,
    ) -> None:
        super().__init__(
            lambda: ir.Tensor(self.floats().astype(dtype.numpy())),
            dtype=dtype,
            shape=ir.Shape(shape),
            name=name,
        )
        self.format = weight_format
        self._make = make

    @property
    def stored_dtype(self) -> ir.DataType:
        """Return the type of a stored integer."""
        return ir.DataType.UINT4 if self.format.bits == 4 else ir.DataType.UINT8

    def floats(self) -> npt.NDArray[np.float32]:
        """Return the weight as float32."""
        return self._make().dequantize()

    def grouped(self) -> Grouped:
        """Return the integers in groups of `format`.

        Raises ModelError where scales are not finite.
        """
        found = self._make()
        if not np.isfinite(found.scale).all():
            row = int(np.flatnonzero(~np.isfinite(found.scale).all(axis=1))[0])
            raise ModelError(
                f"weight {self.name!r}: a scale of its row {row} is NaN or infinite; get the file "
                "again, or quantize the float model"
            )
        k = found.q.shape[1]
        repeats = 1 if found.block >= k else found.block // self.format.group
        whole = np.repeat(found.scale, repeats, axis=1)
        groups = self.format.groups(k)
        whole = np.repeat(whole, groups, axis=1) if found.block >= k else whole[:, :groups]
        zero = None
        if self.format.affine:
            assert found.zero is not None
            of_groups = np.repeat(found.zero, groups if found.block >= k else repeats, axis=1)
            zero = np.ascontiguousarray(of_groups[:, :groups])
        channel = _powers(whole)
        scale = (whole / channel[:, None]).astype(np.float16)
        rounded = int(np.count_nonzero(scale.astype(np.float32) * channel[:, None] != whole))
        return Grouped(GroupedWeight(found.q, scale, zero, channel, self.format), rounded)


def _powers(scale: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return each row's divisor, 1 or a power of two, that makes its scales float16, not tiny."""
    top = np.abs(scale).max(axis=1, initial=0)
    held = ((top >= LEAST) & (top < MOST)) | (top == 0)
    _, exponent = np.frexp(top)
    powers: npt.NDArray[np.float32] = np.where(held, 1, np.ldexp(np.float32(1), exponent - 1))
    return powers.astype(np.float32)
