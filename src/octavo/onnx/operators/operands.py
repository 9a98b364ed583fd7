"""The operands of a linear operator, and where its weight is stored."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.emit.emitter import Emitter
from octavo.onnx.constants import Constants, Root


@dataclass(frozen=True)
class Arrangement:
    """How a matrix [K, N] is made of stored numbers that are none; equal `key`s make equal ones."""

    shape: tuple[int, int]
    make: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    key: Hashable


Step = Callable[[Emitter, ir.Value, str], ir.Value]
"""Draws what stands between a node's value and a product's, under a name."""


@dataclass(frozen=True)
class Operands:
    """y = alpha * x @ W + beta * bias; W is `w`, or its last two axes swapped, or arranged.

    `before` makes the product's x, [..., K], of the node's; `after` the node's y of [..., N].
    """

    x: ir.Value
    w: ir.Value
    transpose_x: bool = False
    transpose_w: bool = False
    alpha: float = 1.0
    bias: ir.Value | None = None
    beta: float = 1.0
    arrangement: Arrangement | None = None
    before: Step | None = None
    after: Step | None = None

    def shape(self, constants: Constants) -> tuple[int, ...]:
        """That of the weight, arranged."""
        return constants.shape(self.w) if self.arrangement is None else self.arrangement.shape

    def orientation(self, constants: Constants) -> tuple[Root, bool]:
        """Where W [K, N] is stored, and whether it is stored as [N, K]."""
        root = constants.root(self.w)
        return root, root.transposed != self.transpose_w


def transposed_input(operands: Operands, x: ir.Value, e: Emitter) -> ir.Value:
    """`x`, which stands for that of `operands`, with its last two axes swapped."""
    rank = 2 if operands.x.shape is None else len(operands.x.shape)
    if rank == 1:  # ONNX Runtime's FusedMatMul leaves a vector as it is
        return x
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return e.transpose(x, perm, f"{x.name}_transposed")


def inputs_of(shape: Sequence[int], transposed: bool) -> int:
    """K of a weight of `shape`."""
    if len(shape) == 1:
        return shape[0]
    return shape[-1] if transposed else shape[-2]
