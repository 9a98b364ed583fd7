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
from octavo.onnx.operators.reader import ReadContext, is_float_type
from octavo.recipe import Kind, Scheme


def reference(equation: str, x: npt.NDArray[Any], w: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Compute the float operator in float64: `w` is the dequantized weight."""
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
        """Return the letters of K, which are summed over, in the weight's order."""
        return "".join(a for a in self.w if a not in self.y)

    @property
    def rows(self) -> str:
        """Return the letters of x that are kept, in the result's order."""
        return "".join(a for a in self.y if a in self.x)

    @property
    def outputs(self) -> str:
        """Return the letters of N, in the result's order."""
        return "".join(a for a in self.y if a in self.w)

    def is_linear(self) -> bool:
        """Tell whether it is a product of rows and a matrix."""
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

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        sides = _sides(node, constants)
        if sides is None or not is_float_type(constants.dtype(sides[1])):
            return None
        return (sides[1],)

    def kind_of(self, node: ir.Node, weights: tuple[ir.Value, ...]) -> Kind:
        return Kind.LINEAR

    def outputs(self, node: ir.Node, shape: Sequence[int]) -> int | None:
        return None  # the equation has them, not the shape

    def takes_native(self, node: ir.Node, scheme: Scheme, c: ReadContext) -> bool:
        linear = self.operands(node, c.constants) is not None
        return linear and super().takes_native(node, scheme, c)

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        return _refused(node, c.constants) or super().check(node, scheme, c, native=native)

    def operands(self, node: ir.Node, constants: Constants) -> Operands | None:
        sides = _sides(node, constants)
        if sides is None or _refused(node, constants):
            return None
        x, w, letters = sides
        return _operands(x, w, letters, dict(zip(letters.w, constants.shape(w), strict=True)))


def _sides(node: ir.Node, constants: Constants) -> tuple[ir.Value, ir.Value, Letters] | None:
    """Return the activation, the weight and the letters; None where there are other operands."""
    if len(node.inputs) != 2:
        return None
    first, second = node.inputs
    is_second = constants.is_constant(second)
    x, w = (first, second) if is_second else (second, first)
    if x is None or w is None or constants.is_constant(x) or not constants.is_constant(w):
        return None
    equation = node.attributes["equation"].as_string().replace(" ", "")
    given, _, result = equation.partition("->")
    of_first, _, of_second = given.partition(",")
    of_x, of_w = (of_first, of_second) if is_second else (of_second, of_first)
    return x, w, Letters(of_x, of_w, result)


def _refused(node: ir.Node, constants: Constants) -> str | None:
    """Return why the equation is no linear layer, or None where it is one."""
    sides = _sides(node, constants)
    assert sides is not None
    x, w, letters = sides
    shape = constants.shape(w)
    equation = node.attributes["equation"].as_string()
    if not letters.is_linear() or len(letters.w) != len(shape):
        return f"its equation {equation!r} is not the product of rows and one matrix"
    sizes = dict(zip(letters.w, shape, strict=True))
    for letter in letters.summed:
        stated = None if x.shape is None else x.shape[letters.x.index(letter)]
        # An axis of size 1 would be repeated: a sum of other numbers than the product's.
        if sizes[letter] == 1 or not isinstance(stated, int) or stated != sizes[letter]:
            return (
                f"it sums over {letter!r} of {equation!r}, whose size the weight has as "
                f"{sizes[letter]} and the model states as {stated}: one of size 1 is repeated"
            )
    return None


def _operands(x: ir.Value, w: ir.Value, letters: Letters, sizes: dict[str, int]) -> Operands:
    summed, outputs = letters.summed, letters.outputs
    inputs = prod(sizes[a] for a in summed)
    shape = inputs, prod(sizes[a] for a in outputs)

    def matrix(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        order = [letters.w.index(a) for a in summed + outputs]
        return np.ascontiguousarray(array.transpose(order)).reshape(shape)

    plain = len(letters.w) == 2  # stored as a matrix, which other layers may share
    arrangement = None if plain else Arrangement(shape, matrix, (letters.w, summed, outputs))
    return Operands(
        x,
        w,
        transpose_w=plain and letters.w == outputs + summed,
        arrangement=arrangement,
        before=partial(_rows, letters, inputs),
        after=partial(_result, letters, [sizes[a] for a in outputs]),
    )


def _rows(letters: Letters, inputs: int, e: Emitter, x: ir.Value, out: str) -> ir.Value:
    """x [rows, K]: what is summed over lies last, in one axis."""
    order = letters.rows + letters.summed
    if order != letters.x:
        x = e.transpose(x, [letters.x.index(a) for a in order], f"{out}_ordered")
    if len(letters.summed) == 1:
        return x
    return e.op("Reshape", [x, e.vector([0] * len(letters.rows) + [inputs])], out=out)


def _result(letters: Letters, sizes: Sequence[int], e: Emitter, y: ir.Value, out: str) -> ir.Value:
    """y [rows, N] with the axes that the equation gives it."""
    if len(sizes) > 1:
        shape = e.vector([0] * len(letters.rows) + list(sizes))
        y = e.op("Reshape", [y, shape], out=f"{out}_axes")
    order = letters.rows + letters.outputs
    if order != letters.y:
        y = e.transpose(y, [order.index(a) for a in letters.y], out)
    return y
