"""Reshapes that part the heads of what a layer gives, and those that put them together again.

Q [B, S, H*D] ─ Reshape[B, S, H, D]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import STANDARD, SizeOf, sizes, stated_rank
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.kept_axes import float_layer, leaves_rows
from octavo.graph.analysis.ranks import Ranks
from octavo.ir.activation_products import LAST_SWAPPED
from octavo.ir.linear import GroupedLinear, Linear


@dataclass(frozen=True)
class Split:
    """A Reshape of `source` [B, L, heads * depth] to [B, L, heads, depth]."""

    reshape: ir.Node
    source: ir.Value
    heads: int
    depth: int


class HeadSplits:
    """Answers for the values of one model.

    With `weights` the layers that give what is split may be float: a MatMul, and an Add behind it.
    """

    def __init__(
        self, constants: ConstantLookup, ranks: Ranks | None, weights: ConstantLookup | None
    ) -> None:
        self._constants, self._ranks, self._weights = constants, ranks, weights

    def split(self, node: ir.Node, source: ir.Value | None = None) -> Split | None:
        """Read `node` as a Reshape that parts heads; None where `node` is not one.

        `source` stands for a value of the same shape before the node.
        """
        if not is_standard(node, "Reshape"):
            return None
        source = node.inputs[0] if source is None else source
        shape = sizes(node.inputs[1], self._constants) if source is not None else None
        if source is None or shape is None or not self.leaves(node, 4, source):
            return None
        if self._weights is not None and self._ranks is not None and self._ranks(source) != 3:
            return None
        if source.shape is not None and len(source.shape) != 3:
            return None
        heads, depth, width = shape[2], shape[3], _width(source, self._weights)
        if width is None or not isinstance(heads, int) or not isinstance(depth, int):
            return None
        heads, depth = (
            (width // depth if heads == -1 else heads),
            (width // heads if depth == -1 else depth),
        )
        if heads <= 0 or depth <= 0 or heads * depth != width:
            return None
        return Split(node, source, heads, depth)

    def leaves(self, reshape: ir.Node, rank: int, source: ir.Value) -> bool:
        """Tell whether a Reshape to `rank` axes keeps the batch and the length of `source`."""
        shape = sizes(reshape.inputs[1], self._constants)
        if shape is None or len(shape) != rank:
            return False
        allowzero = reshape.attributes.get("allowzero")
        zero_is_size = allowzero is not None and allowzero.as_int() == 1
        return leaves_rows(shape[:2], source, self._weights, zero_is_size=zero_is_size)

    def swapped(self, node: ir.Node) -> ir.Value | None:
        """Return the [B, H, T, D] that `node` makes [B, H, D, T] of by way of [B*H, T, D].

        So does PyTorch's exporter: Reshape, Transpose, Reshape.
        """
        if not is_standard(node, "Reshape") or node.inputs[0] is None:
            return None
        turned = node.inputs[0].producer()
        if turned is None or not is_standard(turned, "Transpose"):
            return None
        flat = None if turned.inputs[0] is None else turned.inputs[0].producer()
        if perm_of(turned) != (0, 2, 1) or flat is None or not is_standard(flat, "Reshape"):
            return None
        value = flat.inputs[0]
        rank_of = stated_rank if self._ranks is None else self._ranks
        first, last = (sizes(n.inputs[1], self._constants, rank_of) for n in (flat, node))
        if value is None or first is None or last is None or first[:1] != [-1]:
            return None
        if rank_of(value) != 4:
            return None
        same = _are_sizes(first[1:], value, (2, 3)) and _are_sizes(last, value, LAST_SWAPPED)
        return value if same else None


def is_standard(node: ir.Node | None, op_type: str) -> bool:
    """Tell whether `node` is that operator of ONNX itself."""
    return node is not None and node.op_type == op_type and node.domain in STANDARD


def perm_of(node: ir.Node) -> tuple[int, ...]:
    """Return the order of axes of a Transpose; empty where it is not stated."""
    perm = node.attributes.get("perm")
    return () if perm is None else tuple(perm.as_ints())


def _are_sizes(found: Sequence[int | SizeOf], value: ir.Value, axes: Sequence[int]) -> bool:
    """Tell whether `found` are the sizes of those axes of `value`, which has four."""
    if len(found) != len(axes):
        return False
    stated = [None] * 4 if value.shape is None else list(value.shape)
    return all(
        f == SizeOf(value, axis) or (isinstance(f, int) and f == stated[axis])
        for f, axis in zip(found, axes, strict=True)
    )


def _width(value: ir.Value, weights: ConstantLookup | None) -> int | None:
    """Return the last dimension of what a linear layer gives, if that is float32.

    With `weights` the layer may be a MatMul, and an Add behind it.
    """
    node = value.producer()
    if node is None:
        return _stated_width(value) if weights is None else None
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
        if is_standard(node, "MatMul"):
            return columns
        width = _width(layer.source, weights)
        return width if columns in (1, width) else None
    return _stated_width(value)


def _stated_width(value: ir.Value) -> int | None:
    if value.dtype is not ir.DataType.FLOAT or value.shape is None or not len(value.shape):
        return None
    return value.shape[-1] if isinstance(value.shape[-1], int) else None
