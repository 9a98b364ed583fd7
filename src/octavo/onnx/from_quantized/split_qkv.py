"""Products that target portable put together (`octavo.graph.rewrite.merge_qkv`), taken apart again.

    MatMulIntegerToFloat([Wq Wk Wv]) ─ Mul(row) ─ Add ─ Reshape ─ Transpose ─ Split ─ q, k, v
    ->
    MatMulIntegerToFloat(Wq) ─ Mul(row) ─ Add ─ Reshape ─ Transpose ─ q     and so on

Layers, and what target native makes of attentions, are then found as if it had not been done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import sizes
from octavo.graph.rewrite.merge_qkv import JOINT
from octavo.ir import MS
from octavo.ir.activation_products import HEADS_FIRST
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.from_quantized.quantized_rows import other, read_by


def split_qkv(graph: ir.Graph, t: RestoringContext) -> None:
    """Draws the parts of every such product of `graph`."""
    for node in list(graph):
        if node.op_type == "MatMulIntegerToFloat" and node.domain == MS and len(node.inputs) == 6:
            joint = _joint(node, t)
            if joint is not None:
                for old in (node, joint.scaled, joint.add, joint.reshape, joint.turned):
                    t.names.nodes.free(None if old is None else old.name)
                parts = [joint.draw(i, t) for i in range(len(joint.heads))]
                t.emitter.flush_before(node)
                t.sweeper.replace(joint.split, parts)


@dataclass(frozen=True)
class _Joint:
    """One product of several, node by node, with the heads of each and their depth."""

    product: ir.Node
    scaled: ir.Node
    add: ir.Node | None
    reshape: ir.Node
    turned: ir.Node
    split: ir.Node
    heads: tuple[int, ...]
    depth: int

    def draw(self, i: int, t: RestoringContext) -> ir.Value:
        """Draw the nodes of part `i` alone; return its heads."""
        e = t.emitter
        q, w, step, scale, zero, w_zero = self.product.inputs
        name = self._name(self.product, i)
        parts = [("quantized", w), ("scale", scale), ("zero_point", w_zero)]
        weight = [self._columns(value, i, f"{name}_{what}", t) for what, value in parts]
        inputs = [q, weight[0], step, weight[1], zero, weight[2]]
        y = e.op(self.product.op_type, inputs, out=f"{name}_per_row", domain=MS, name=name)
        row = other(self.scaled, self.product.outputs[0])
        y = e.op("Mul", [y, row], out=f"{name}_product", name=self._name(self.scaled, i))
        if self.add is not None:
            bias = self._columns(other(self.add, self.scaled.outputs[0]), i, f"{name}_bias", t)
            y = e.op("Add", [y, bias], out=f"{name}_biased", name=self._name(self.add, i))
        shape = e.vector([0, 0, self.heads[i], self.depth])
        y = e.op("Reshape", [y, shape], out=f"{name}_apart", name=self._name(self.reshape, i))
        out, perm = self.split.outputs[i].name or f"{name}_heads", list(HEADS_FIRST)
        return e.op("Transpose", [y], out=out, name=self._name(self.turned, i), perm=perm)

    def _name(self, node: ir.Node, i: int) -> str:
        """Return the name of part `i` of `node`, from its joint name where that lists all parts."""
        names = (node.name or node.op_type).split(JOINT)
        return names[i] if len(names) == len(self.heads) else f"{node.name}_{i}"

    def _columns(
        self, value: ir.Value | None, i: int, wish: str, t: RestoringContext
    ) -> ir.Value | None:
        """Return part `i` of a constant along its last axis; one number stands for every part."""
        if value is None or t.constants.shape(value) == ():
            return value
        start = sum(self.heads[:i]) * self.depth
        array: npt.NDArray[Any] = t.numbers(value)
        if array.shape[-1] != sum(self.heads) * self.depth:
            return value
        return t.emitter.constant(
            np.ascontiguousarray(array[..., start : start + self.heads[i] * self.depth]), wish
        )


def _joint(product: ir.Node, t: RestoringContext) -> _Joint | None:
    """Return the product of several layers at `product`; None where it is no such product."""
    scaled = read_by(product.outputs[0], "Mul")
    add = None if scaled is None else read_by(scaled.outputs[0], "Add")
    if scaled is None or (add is not None and not _adds_constant(add, scaled, t)):
        return None
    reshape = read_by((add or scaled).outputs[0], "Reshape")
    turned = None if reshape is None else read_by(reshape.outputs[0], "Transpose")
    split = None if turned is None else read_by(turned.outputs[0], "Split")
    if reshape is None or turned is None or split is None or not _takes_heads(turned, split):
        return None
    shape, heads = sizes(reshape.inputs[1], t.constants), _heads(split, t)
    if shape is None or len(shape) != 4 or shape[:2] != [0, 0] or shape[2] != sum(heads):
        return None
    depth = shape[3]
    if not isinstance(depth, int) or len(heads) != len(split.outputs):
        return None
    if len((product.name or "").split(JOINT)) != len(heads):  # one layer in the float model too
        return None
    return _Joint(product, scaled, add, reshape, turned, split, tuple(heads), depth)


def _adds_constant(add: ir.Node, scaled: ir.Node, t: RestoringContext) -> bool:
    return t.constants.tensor(other(add, scaled.outputs[0])) is not None


def _takes_heads(turned: ir.Node, split: ir.Node) -> bool:
    perm, axis = turned.attributes.get("perm"), split.attributes.get("axis")
    if perm is None or axis is None:
        return False
    return tuple(perm.as_ints()) == HEADS_FIRST and axis.as_int() == 1


def _heads(split: ir.Node, t: RestoringContext) -> Sequence[int]:
    """Return the number of heads of each part; none where they are not constant."""
    given = split.attributes.get("split")
    if given is not None:
        return given.as_ints()
    found = sizes(split.inputs[1], t.constants) if len(split.inputs) > 1 else None
    return [i for i in found or [] if isinstance(i, int)]
