"""Einsum of an activation and a constant, where it is a linear layer.

    Einsum("bsd,dhk->bshk", x, W)  ->  Linear(x [B, S, D], W [D, H * K]), Reshape [B, S, H, K]

The letters that both operands have and the result has not are summed over. Those that only one of
them has are in the result. A letter that all three have would be a product for each of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.emit.emitter import Emitter
from octavo.onnx.constants import Constants
from octavo.onnx.operators.linear import LinearReader
from octavo.onnx.operators.operands import Arrangement, Operands


def reference(equation: str, x: npt.NDArray[Any], w: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The float operator, in float64: `w` is the dequantized weight."""
    y: npt.NDArray[np.float64] = np.einsum(equation, x.astype(np.float64), w.astype(np.float64))
    return y


@dataclass(frozen=True)
class Letters:
    """An equation taken apart: letters of x, of the weight and of the result."""

    x: str
    w: str
    y: str

    @property
    def summed(self) -> str:
        """Those of K, in the weight's order."""
        return "".join(a for a in self.w if a not in self.y)

    @property
    def rows(self) -> str:
        """Those of x that are kept, in the result's order."""
        return "".join(a for a in self.y if a in self.x)

    @property
    def outputs(self) -> str:
        """Those of N, in the result's order."""
        return "".join(a for a in self.y if a in self.w)

    def is_linear(self) -> bool:
        """Whether it is a product of rows and a matrix."""
        plain = all(part.isalpha() and len(set(part)) == len(part) for part in (self.x, self.w))
        return (
            plain
            and len(set(self.y)) == len(self.y)
            and set(self.x) & set(self.w) == set(self.summed)
            and set(self.x) - set(self.summed) == set(self.rows)
            and set(self.y) == set(self.rows) | set(self.outputs)
            and bool(self.summed and self.outputs and self.rows)
        )


class EinsumReader(LinearReader):
    """Two operands, one of them constant."""

    op = "Einsum"

    def outputs(self, node: ir.Node, shape: Sequence[int]) -> int | None:
        return None  # the equation has them, not the shape

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        found = self.operands(node, constants)
        return (
            None if found is None or found.arrangement is None else super().match(node, constants)
        )

    def operands(self, node: ir.Node, constants: Constants) -> Operands | None:
        if len(node.inputs) != 2:
            return None
        first, second = node.inputs
        constant = constants.is_constant(second)
        x, w = (first, second) if constant else (second, first)
        if x is None or w is None or not constants.is_constant(w):
            return None
        given, _, result = node.attributes["equation"].as_string().replace(" ", "").partition("->")
        of_first, _, of_second = given.partition(",")
        letters = Letters(*((of_first, of_second) if constant else (of_second, of_first)), result)
        shape = constants.shape(w)
        if not letters.is_linear() or len(letters.w) != len(shape):
            return None
        return _operands(x, w, letters, dict(zip(letters.w, shape, strict=True)))


def _operands(x: ir.Value, w: ir.Value, letters: Letters, sizes: dict[str, int]) -> Operands:
    summed, outputs = letters.summed, letters.outputs
    shape = prod(sizes[a] for a in summed), prod(sizes[a] for a in outputs)

    def matrix(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        order = [letters.w.index(a) for a in summed + outputs]
        return np.ascontiguousarray(array.transpose(order)).reshape(shape)

    return Operands(
        x,
        w,
        arrangement=Arrangement(shape, matrix, (letters.w, summed, outputs)),
        before=partial(_rows, letters),
        after=partial(_result, letters, [sizes[a] for a in outputs]),
    )


def _rows(letters: Letters, e: Emitter, x: ir.Value, out: str) -> ir.Value:
    """x [rows, K]: what is summed over lies last, in one axis."""
    order = letters.rows + letters.summed
    if order != letters.x:
        x = e.transpose(x, [letters.x.index(a) for a in order], f"{out}_ordered")
    if len(letters.summed) == 1:
        return x
    return e.op("Reshape", [x, e.vector([0] * len(letters.rows) + [-1])], out=out)


def _result(letters: Letters, sizes: Sequence[int], e: Emitter, y: ir.Value, out: str) -> ir.Value:
    """y [rows, N] with the axes that the equation gives it."""
    if len(sizes) > 1:
        shape = e.vector([0] * len(letters.rows) + list(sizes))
        y = e.op("Reshape", [y, shape], out=f"{out}_axes")
    order = letters.rows + letters.outputs
    if order != letters.y:
        y = e.transpose(y, [order.index(a) for a in letters.y], out)
    return y
