"""Finds attention over layers that lie as rows, as exporters write it: twenty nodes and more.

    Q ─ Reshape[B,S,H,D] ─ Transpose ─┐
    K ─ Reshape[B,T,H,D] ─ Transpose ─┴ MatMul ─ Mul(scale) ─ Add(mask) ─ Softmax ─┐
    V ─ Reshape[B,T,H,E] ─ Transpose ──────────────────────────────────────────────┴ MatMul ─
      ─ Transpose ─ Reshape[B,S,H*E]

Scales may stand on Q, K or the product, as factors or divisors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.heads import HeadSplits, is_standard, perm_of
from octavo.graph.analysis.ranks import Ranks
from octavo.graph.analysis.walk import only_reader
from octavo.ir.activation_products import HEADS_FIRST, LAST_SWAPPED

LAST_AXIS_BY_DEFAULT = 13  # opset of Softmax


@dataclass(frozen=True)
class Heads:
    """A value [B, L, H*D] seen as [B, L, H, D], with the order of axes in which it is used."""

    reshape: ir.Node
    source: ir.Value
    heads: int
    depth: int
    order: tuple[int, ...]
    scale: float


@dataclass(frozen=True)
class FoundAttention:
    """One of them: what it is made of, its mask, and the Reshape that ends it."""

    q: Heads
    k: Heads
    v: Heads
    scale: float
    bias: ir.Value | None
    last: ir.Node


def attentions_of(
    graph: ir.Graph, constants: ConstantLookup, opset: int, ranks: Ranks | None
) -> Iterator[FoundAttention]:
    """Yield the attentions of `graph` lazily, in node order.

    Replacing one may create the inputs of the next. With `ranks` the layers that give Q, K and V
    may be float: a MatMul, and an Add behind it.
    """
    for node in [n for n in graph if is_standard(n, "Softmax")]:
        found = _Match(node, constants, opset, ranks).find()
        if found is not None:
            yield found


class _Match:
    """One Softmax node, and what may stand around it."""

    def __init__(
        self, softmax: ir.Node, constants: ConstantLookup, opset: int, ranks: Ranks | None
    ) -> None:
        self.softmax, self.constants = softmax, constants
        weights = None if ranks is None else constants
        self.splits = HeadSplits(constants, ranks, weights)
        self.flattens = opset < LAST_AXIS_BY_DEFAULT

    def find(self) -> FoundAttention | None:
        """Return the attention around the Softmax, if there is one; else None."""
        axis = self.softmax.attributes.get("axis")
        if self.flattens if axis is None else axis.as_int() not in (-1, 3):
            return None
        end = self._end()
        start = self._start()
        if end is None or start is None:
            return None
        v, last = end
        q, k, scale, bias = start
        if not q.heads == k.heads == v.heads or q.depth != k.depth:
            return None
        if not self.splits.leaves(last, 3, q.source):
            return None
        return FoundAttention(q, k, v, scale, bias, last)

    def _end(self) -> tuple[Heads, ir.Node] | None:
        """V, and the Reshape that ends the attention."""
        product = self._reader(self.softmax.outputs[0], "MatMul", 0)
        if product is None:
            return None
        v = self._heads(product.inputs[1])
        turned = self._reader(product.outputs[0], "Transpose", 0)
        if v is None or v.order != HEADS_FIRST or v.scale != 1.0 or turned is None:
            return None
        if perm_of(turned) != HEADS_FIRST:
            return None
        last = self._reader(turned.outputs[0], "Reshape", 0)
        if last is None:
            return None
        shape = sizes(last.inputs[1], self.constants)
        if shape is None or len(shape) != 3 or shape[2] not in (-1, v.heads * v.depth):
            return None
        return v, last

    def _start(self) -> tuple[Heads, Heads, float, ir.Value | None] | None:
        """Q, K, the scale and the mask of the scores."""
        scores, bias = self.softmax.inputs[0], None
        found = self._scores(scores)
        add = None if scores is None else scores.producer()
        if found is None and add is not None and is_standard(add, "Add"):
            for i in (0, 1):
                found = self._scores(add.inputs[i])
                if found is not None:
                    bias = add.inputs[1 - i]
                    break
        return None if found is None else (*found, bias)

    def _scores(self, value: ir.Value | None) -> tuple[Heads, Heads, float] | None:
        inner, scale = self._unscaled(value)
        node = None if inner is None else inner.producer()
        if node is None or not is_standard(node, "MatMul"):
            return None
        q, k = self._heads(node.inputs[0]), self._heads(node.inputs[1])
        if q is None or k is None or q.order != HEADS_FIRST or k.order != (0, 2, 3, 1):
            return None
        return q, k, scale * q.scale * k.scale

    def _heads(self, value: ir.Value | None) -> Heads | None:
        """Read `value` backwards, through Transposes and scales, to a Reshape to [B, L, H, D]."""
        order: tuple[int, ...] = (0, 1, 2, 3)
        scale = 1.0
        while True:
            value, factor = self._unscaled(value)
            scale *= factor
            node = None if value is None else value.producer()
            if node is None:
                return None
            swapped = self.splits.swapped(node)
            if swapped is not None:
                order = tuple(LAST_SWAPPED[i] for i in order)
                value = swapped
                continue
            if not is_standard(node, "Transpose"):
                break
            perm = perm_of(node)
            if len(perm) != 4:
                return None
            order = tuple(perm[i] for i in order)
            value = node.inputs[0]
        split = self.splits.split(node)
        if split is None:
            return None
        return Heads(node, split.source, split.heads, split.depth, order, scale)

    def _unscaled(self, value: ir.Value | None) -> tuple[ir.Value | None, float]:
        """Return `value` without factors and divisors that are constant, and their product."""
        scale = 1.0
        while value is not None:
            node = value.producer()
            if node is None or not (is_standard(node, "Mul") or is_standard(node, "Div")):
                break
            factor, i = self._number(node.inputs[1]), 0
            if factor is None and is_standard(node, "Mul"):
                factor, i = self._number(node.inputs[0]), 1
            if factor is None or factor == 0.0:
                break
            scale = scale * factor if is_standard(node, "Mul") else scale / factor
            value = node.inputs[i]
        return value, scale

    def _number(self, value: ir.Value | None) -> float | None:
        tensor = self.constants.tensor(value)
        if tensor is None or tensor.size != 1 or tensor.dtype is not ir.DataType.FLOAT:
            return None
        return float(np.asarray(tensor.numpy()).reshape(-1)[0])

    def _reader(self, value: ir.Value, op_type: str, index: int) -> ir.Node | None:
        """Return the only reader of `value`, if it is an `op_type` with `value` at `index`."""
        reader = only_reader(value)
        if reader is None or reader[1] != index or not is_standard(reader[0], op_type):
            return None
        return reader[0]
