"""Finds attention as exporters write it, twenty nodes and more.

    Q ─ Reshape[B,S,H,D] ─ Transpose ─┐
    K ─ Reshape[B,T,H,D] ─ Transpose ─┴ MatMul ─ Mul(scale) ─ Add(mask) ─ Softmax ─┐
    V ─ Reshape[B,T,H,E] ─ Transpose ──────────────────────────────────────────────┴ MatMul ─
      ─ Transpose ─ Reshape[B,S,H*E]

Scales may stand on Q, K or the product, as factors or divisors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.kept_axes import float_layer, leaves_rows
from octavo.graph.analysis.ranks import Ranks
from octavo.graph.analysis.walk import only_reader
from octavo.ir.activation_products import HEADS_FIRST, LAST_SWAPPED, REST, SIZE_OF_Q, Attention
from octavo.ir.linear import GroupedLinear, Linear
from octavo.ir.weight import Weight

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
    shape: tuple[int, ...]
    """What the last Reshape asks for, as `octavo.ir.activation_products` has it."""

    def operator(self) -> Attention:
        """It as one operator."""
        sources = self.q.source, self.k.source, self.v.source
        shape = self.shape
        if (
            shape[2] == REST
            and SIZE_OF_Q in shape
            and _is_read_as(self.last.outputs[0], self.v.heads * self.v.depth)
        ):
            shape = (*shape[:2], self.v.heads * self.v.depth)
        return Attention(*sources, self.bias, self.q.heads, self.scale, shape)


def _is_read_as(value: ir.Value, width: int) -> bool:
    """Whether a layer reads `value` that takes no other last size than `width`."""
    readers = [use.node for use in value.uses() if use.idx == 0]
    return any(w is not None and w.k == width for w in map(_weight, readers))


def _weight(node: ir.Node) -> Weight | None:
    """That of the first layer of a linear node."""
    linear, group = Linear.of(node), GroupedLinear.of(node)
    if linear is not None:
        return linear.weight
    return None if group is None else group.parts[0].weight


def attentions_of(
    graph: ir.Graph, constants: ConstantLookup, opset: int, ranks: Ranks | None
) -> Iterator[FoundAttention]:
    """What `graph` holds of them, in its order. Each is looked for when it is asked for: one that
    was replaced before may have made what it reads.

    With `ranks` the layers that give Q, K and V may be float: a MatMul, and an Add behind it.
    """
    for node in [n for n in graph if _is(n, "Softmax")]:
        found = _Match(node, constants, opset, ranks).find()
        if found is not None:
            yield found


class _Match:
    """One Softmax node, and what may stand around it."""

    def __init__(
        self, softmax: ir.Node, constants: ConstantLookup, opset: int, ranks: Ranks | None
    ) -> None:
        self.softmax, self.constants, self.ranks = softmax, constants, ranks
        self.weights = None if ranks is None else constants
        self.flattens = opset < LAST_AXIS_BY_DEFAULT

    def find(self) -> FoundAttention | None:
        """The attention around it, if it is one."""
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
        if not self._leaves(last, 3, q.source):
            return None
        shape = sizes(last.inputs[1], self.constants)
        assert shape is not None  # `_leaves` has seen it
        asked = tuple(SIZE_OF_Q if isinstance(size, SizeOf) else size for size in shape)
        return FoundAttention(q, k, v, scale, bias, last, asked)

    def _end(self) -> tuple[Heads, ir.Node] | None:
        """V, and the Reshape that ends the attention."""
        product = self._reader(self.softmax.outputs[0], "MatMul", 0)
        if product is None:
            return None
        v = self._heads(product.inputs[1])
        turned = self._reader(product.outputs[0], "Transpose", 0)
        if v is None or v.order != HEADS_FIRST or v.scale != 1.0 or turned is None:
            return None
        if _perm(turned) != HEADS_FIRST:
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
        if found is None and add is not None and _is(add, "Add"):
            for i in (0, 1):
                found = self._scores(add.inputs[i])
                if found is not None:
                    bias = add.inputs[1 - i]
                    break
        return None if found is None else (*found, bias)

    def _scores(self, value: ir.Value | None) -> tuple[Heads, Heads, float] | None:
        inner, scale = self._unscaled(value)
        node = None if inner is None else inner.producer()
        if node is None or not _is(node, "MatMul"):
            return None
        q, k = self._heads(node.inputs[0]), self._heads(node.inputs[1])
        if q is None or k is None or q.order != HEADS_FIRST or k.order != (0, 2, 3, 1):
            return None
        return q, k, scale * q.scale * k.scale

    def _heads(self, value: ir.Value | None) -> Heads | None:
        """`value` as a Reshape to [B, L, H, D] behind Transposes and scales."""
        order: tuple[int, ...] = (0, 1, 2, 3)
        scale = 1.0
        while True:
            value, factor = self._unscaled(value)
            scale *= factor
            node = None if value is None else value.producer()
            if node is None:
                return None
            swapped = self._swapped(node)
            if swapped is not None:
                order = tuple(LAST_SWAPPED[i] for i in order)
                value = swapped
                continue
            if not _is(node, "Transpose"):
                break
            perm = _perm(node)
            if len(perm) != 4:
                return None
            order = tuple(perm[i] for i in order)
            value = node.inputs[0]
        source = node.inputs[0] if _is(node, "Reshape") else None
        shape = sizes(node.inputs[1], self.constants) if source is not None else None
        if source is None or shape is None or not self._leaves(node, 4, source):
            return None
        if self.ranks is not None and self.ranks(source) != 3:
            return None
        if source.shape is not None and len(source.shape) != 3:
            return None
        heads, depth, width = shape[2], shape[3], _width(source, self.weights)
        if width is None or not isinstance(heads, int) or not isinstance(depth, int):
            return None
        heads, depth = (
            (width // depth if heads == -1 else heads),
            (width // heads if depth == -1 else depth),
        )
        if heads <= 0 or depth <= 0 or heads * depth != width:
            return None
        return Heads(node, source, heads, depth, order, scale)

    def _leaves(self, reshape: ir.Node, rank: int, source: ir.Value) -> bool:
        """Whether a Reshape to `rank` axes keeps the batch and the length of `source`."""
        shape = sizes(reshape.inputs[1], self.constants)
        if shape is None or len(shape) != rank:
            return False
        allowzero = reshape.attributes.get("allowzero")
        zero_is_size = allowzero is not None and allowzero.as_int() == 1
        return leaves_rows(shape[:2], source, self.weights, zero_is_size=zero_is_size)

    def _swapped(self, node: ir.Node) -> ir.Value | None:
        """The value [B, H, T, D] that `node` makes [B, H, D, T] of by way of [B*H, T, D].

        So does PyTorch's exporter: Reshape, Transpose, Reshape.
        """
        if not _is(node, "Reshape") or node.inputs[0] is None:
            return None
        turned = node.inputs[0].producer()
        if turned is None or not _is(turned, "Transpose"):
            return None
        flat = None if turned.inputs[0] is None else turned.inputs[0].producer()
        if _perm(turned) != (0, 2, 1) or flat is None or not _is(flat, "Reshape"):
            return None
        value = flat.inputs[0]
        first, last = (sizes(n.inputs[1], self.constants) for n in (flat, node))
        if value is None or first is None or last is None or first[:1] != [-1]:
            return None
        same = _are_sizes(first[1:], value, (2, 3)) and _are_sizes(last, value, LAST_SWAPPED)
        return value if same else None

    def _unscaled(self, value: ir.Value | None) -> tuple[ir.Value | None, float]:
        """`value` without factors and divisors that are constant, and their product."""
        scale = 1.0
        while value is not None:
            node = value.producer()
            if node is None or not (_is(node, "Mul") or _is(node, "Div")):
                break
            factor, i = self._number(node.inputs[1]), 0
            if factor is None and _is(node, "Mul"):
                factor, i = self._number(node.inputs[0]), 1
            if factor is None or factor == 0.0:
                break
            scale = scale * factor if _is(node, "Mul") else scale / factor
            value = node.inputs[i]
        return value, scale

    def _number(self, value: ir.Value | None) -> float | None:
        tensor = self.constants.tensor(value)
        if tensor is None or tensor.size != 1 or tensor.dtype is not ir.DataType.FLOAT:
            return None
        return float(np.asarray(tensor.numpy()).reshape(-1)[0])

    def _reader(self, value: ir.Value, op_type: str, index: int) -> ir.Node | None:
        """The one reader of `value`, if it is an `op_type` that reads it at `index`."""
        reader = only_reader(value)
        if reader is None or reader[1] != index or not _is(reader[0], op_type):
            return None
        return reader[0]


def _is(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def _perm(node: ir.Node) -> tuple[int, ...]:
    perm = node.attributes.get("perm")
    return () if perm is None else tuple(perm.as_ints())


def _are_sizes(found: Sequence[int | SizeOf], value: ir.Value, axes: Sequence[int]) -> bool:
    """Whether `found` are the sizes of those axes of `value`, which has four."""
    shape = value.shape
    if shape is None or len(shape) != 4 or len(found) != len(axes):
        return False
    return all(
        f == SizeOf(value, axis) or (isinstance(f, int) and f == shape[axis])
        for f, axis in zip(found, axes, strict=True)
    )


def _width(value: ir.Value, weights: ConstantLookup | None) -> int | None:
    """The last dimension of what a linear layer gives, if that is float32.

    With `weights` the layer may be a MatMul, and an Add behind it.
    """
    node = value.producer()
    if node is None:
        return None
    linear, group = Linear.of(node), GroupedLinear.of(node)
    if linear is not None:
        return linear.weight.n
    if group is not None:
        return group.parts[value.index() or 0].weight.n
    layer = None if weights is None else float_layer(node, weights)
    if layer is not None:
        if layer.constant.dtype is not ir.DataType.FLOAT:
            return None
        columns = layer.constant.shape.numpy()[-1]
        if _is(node, "MatMul"):
            return columns
        width = _width(layer.source, weights)
        return width if columns in (1, width) else None
    if value.dtype is not ir.DataType.FLOAT or value.shape is None or not len(value.shape):
        return None
    return value.shape[-1] if isinstance(value.shape[-1], int) else None
