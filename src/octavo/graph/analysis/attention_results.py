"""What stands behind a Softmax: what makes its weights numbers, the product with V, its Reshapes.

    Softmax ─ Where(IsNaN, 0, .) ─ MatMul(V) ─ Transpose ─ Reshape[B, S, H*E]

PyTorch's exporter writes a Reshape between MatMul and Transpose too, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from octavo.graph.analysis.attention_operands import Operand, axis_of
from octavo.graph.analysis.attention_scores import (
    Condition,
    NotTakenError,
    Why,
    passes,
    reader_beside_sizes,
)
from octavo.graph.analysis.attention_sinks import SinkReader
from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.heads import is_standard, perm_of
from octavo.graph.analysis.kept_axes import same_size
from octavo.graph.analysis.matrix_products import MatrixProduct, product_of
from octavo.graph.analysis.numbers import Numbers
from octavo.graph.analysis.ranks import Ranks
from octavo.graph.analysis.walk import only_reader
from octavo.ir.activation_products import AS_IT_IS, HEADS_FIRST, REST, SIZE_OF_Q, WHOLE, Layout

ROWS = (0, 2)
"""Axes of [B, H, S, E] that are the first two of [B, S, H * E]."""


@dataclass(frozen=True)
class Weights:
    """What a Softmax gives as the product reads it."""

    product: ir.Node
    guarded: bool
    """NaN became 0."""
    zeroed: Condition | None
    """Weights that were made 0 afterwards."""
    reshapes: tuple[ir.Node, ...] = ()
    """What joins batch and heads."""
    sizes: tuple[ir.Node, ...] = ()
    """Nodes Shape that read the weights."""


@dataclass(frozen=True)
class Result:
    """The value that the operator gives instead of the product."""

    value: ir.Value
    layout: Layout
    shape: tuple[int, ...] = WHOLE
    fits: bool = False
    """It takes a bias that is no larger than the products."""
    sizes: tuple[tuple[ir.Node, tuple[int, ...] | None], ...] = ()
    """Nodes Shape of values that are not there any more, and the axes of `value` that they list;
    None where nothing reads them any more."""


class ResultReader:
    """Reads results of one model forwards."""

    def __init__(self, constants: ConstantLookup, numbers: Numbers, ranks: Ranks) -> None:
        self._constants, self._number, self._ranks = constants, numbers, ranks
        self._sinks = SinkReader(constants)

    def weights(self, softmax: ir.Node, *, sunk: bool = False) -> Weights:
        """Read what stands from a Softmax to the product with V.

        If the scores have a sink (`sunk`), its weight is dropped between. Raises NotTakenError.
        """
        value, found = softmax.outputs[0], Weights(softmax, False, None)
        while True:
            guard = self._guard(value)
            if guard is not None:
                value, found = guard, replace(found, guarded=True)
                continue
            read = reader_beside_sizes(value)
            if read is None:
                raise NotTakenError(Why.WEIGHTS_READ)
            node, index, shapes = read
            found = replace(found, sizes=(*found.sizes, *shapes))
            product = product_of(node)
            if product is not None and index == 0:
                if sunk:
                    raise NotTakenError(Why.BEHIND, "a product with the weight of a sink")
                if product != MatrixProduct():
                    raise NotTakenError(Why.BEHIND, f"{node.op_type} that turns or scales")
                return replace(found, product=node)
            if sunk and index == 0 and self._sinks.drops_last(node):
                sunk = False
            elif is_standard(node, "Reshape") and index == 0 and not found.reshapes:
                found = replace(found, reshapes=(node,))
            elif not passes(node, self._constants):
                zeroed = None if found.zeroed else self._zeroed(node, index)
                if zeroed is None:
                    raise NotTakenError(Why.BEHIND, node.op_type)
                found = replace(found, zeroed=zeroed)
            value = node.outputs[0]

    def _guard(self, value: ir.Value) -> ir.Value | None:
        """Return the result of Where(IsNaN(value), 0, value), if that reads `value`; else None."""
        uses = list(value.uses())
        if len(uses) != 2 or value.is_graph_output():
            return None
        test = next((use.node for use in uses if is_standard(use.node, "IsNaN")), None)
        where = next((use.node for use in uses if is_standard(use.node, "Where")), None)
        if test is None or where is None or only_reader(test.outputs[0]) != (where, 0):
            return None
        if where.inputs[2] is not value or self._number(where.inputs[1]) != 0:
            return None
        return where.outputs[0]

    def _zeroed(self, node: ir.Node, index: int) -> Condition | None:
        """Return the condition of Where(condition, weights, 0), or the other way round."""
        if not is_standard(node, "Where") or index == 0 or node.inputs[0] is None:
            return None
        zero = self._number(node.inputs[3 - index]) == 0
        return Condition(node.inputs[0], index == 1, 0.0) if zero else None

    def result(
        self, product: ir.Node, q: Operand, v: Operand, apart: ir.Node | None = None
    ) -> Result:
        """Read what stands from the product on, as far as that can be one node.

        Where batch and heads of the product are one axis, `apart` parts them.
        """
        first = product.outputs[0] if apart is None else apart.outputs[0]
        made = ResultSizes(q, v, (first,))
        plain = Result(first, Layout.HEADS_OUTSIDE)
        absorbed: list[ir.Node] = []
        between = only_step(first, "Reshape")
        if between is not None and self._changes_nothing(between, made):
            absorbed.append(between)
            made = ResultSizes(q, v, (first, between.outputs[0]))
        turned = only_step(made.outside[-1], "Transpose")
        if turned is None or perm_of(turned) != HEADS_FIRST:
            return plain
        fits, inside = bool(absorbed), turned.outputs[0]
        last = only_step(inside, "Reshape")
        whole = ResultSizes(q, v, made.outside, inside)
        shape = None if last is None else self._rows(last, whole)
        if last is not None and shape is not None:
            listed = _listed((*made.outside, inside), (*absorbed, last), None)
            if listed is not None:
                return Result(last.outputs[0], Layout.ROWS, shape, fits, listed)
        listed = _listed(made.outside, absorbed, HEADS_FIRST)
        if listed is None:
            return plain
        return Result(inside, Layout.HEADS_INSIDE, fits=fits, sizes=listed)

    def _changes_nothing(self, reshape: ir.Node, made: ResultSizes) -> bool:
        """Tell whether `reshape` gives [B, H, S, E] the sizes that it has."""
        shape = sizes(reshape.inputs[1], self._constants, self._ranks)
        if shape is None or len(shape) != 4 or (_zero_is_size(reshape) and 0 in shape):
            return False
        known = [element == 0 or made.has(element, axis) for axis, element in enumerate(shape)]
        return all(known) or (known.count(False) == 1 and shape[known.index(False)] == -1)

    def _rows(self, reshape: ir.Node, made: ResultSizes) -> tuple[int, ...] | None:
        """Return the three sizes a Reshape of [B, S, H, E] asks for, as Attention holds them."""
        shape = sizes(reshape.inputs[1], self._constants, self._ranks)
        if shape is None or len(shape) != 3 or list(shape).count(-1) > 1:
            return None
        if _zero_is_size(reshape) and 0 in shape:
            return None
        wanted = [made.asked(element, axis) for axis, element in zip(ROWS, shape, strict=False)]
        known = [size for size in wanted if size is not None]
        if len(known) < len(wanted) or not isinstance(shape[2], int) or not shape[2]:
            return None
        return (*known, shape[2])


@dataclass(frozen=True)
class ResultSizes:
    """The sizes of a result [B, H, S, E], of which `outside` are values and `inside` is turned."""

    q: Operand
    v: Operand
    outside: tuple[ir.Value, ...]
    inside: ir.Value | None = None

    def has(self, element: int | SizeOf, axis: int) -> bool:
        """Tell whether `element` is the size of that axis, or of Q's where a bias makes it more."""
        if isinstance(element, int):
            known = (0, self.q.heads, 0, self.v.depth)[axis]
            return element > 0 and (element == known or self._is_stated(element, axis))
        return self._is_own(element, axis) or self._is_operands(element, axis)

    def asked(self, element: int | SizeOf, axis: int) -> int | None:
        """Return `element` of a shape as the operator has it; None if `element` is another size."""
        if element == 0 or (isinstance(element, SizeOf) and self._is_own(element, axis)):
            return AS_IT_IS
        if isinstance(element, SizeOf):
            return SIZE_OF_Q if self._is_operands(element, axis) else None
        if element == -1:
            return REST
        return element if element > 0 else None

    def _is_own(self, size: SizeOf, axis: int) -> bool:
        if size.value in self.outside:
            return size.axis == axis
        return size.value is self.inside and size.axis == HEADS_FIRST[axis]

    def _is_operands(self, size: SizeOf, axis: int) -> bool:
        if axis == 3:
            return axis_of(size, self.v) == 3
        return axis_of(size, self.q) == axis or any(
            same_size(size.value, size.axis, value, place) for value, place in self._places(axis)
        )

    def _is_stated(self, size: int, axis: int) -> bool:
        """Tell whether the model states that the result or Q has this size."""
        places = [(value, axis) for value in self.outside]
        if self.inside is not None:
            places.append((self.inside, HEADS_FIRST[axis]))
        if axis != 3:
            places += self._places(axis)
        return any(
            value.shape is not None and i < len(value.shape) and value.shape[i] == size
            for value, i in places
        )

    def _places(self, axis: int) -> list[tuple[ir.Value, int]]:
        """Return the values that Q is made of, Q too, each with the place where it has `axis`."""
        found = [(value, places[axis]) for value, places in self.q.axes.items()]
        return [(value, place) for value, place in found if place >= 0]


def _zero_is_size(reshape: ir.Node) -> bool:
    given = reshape.attributes.get("allowzero")
    return given is not None and bool(given.as_int())


def made_of_reshapes(shapes: Sequence[ir.Node], reshapes: Sequence[ir.Node]) -> bool:
    """Tell whether nothing but shapes of `reshapes` is made of what `shapes` list."""
    return all(_ends_in(node, reshapes) for node in shapes)


def _listed(
    values: Sequence[ir.Value], absorbed: Sequence[ir.Node], axes: tuple[int, ...] | None
) -> tuple[tuple[ir.Node, tuple[int, ...] | None], ...] | None:
    """Nodes Shape of `values`, which list `axes` of the result; None where that is not so."""
    found: list[tuple[ir.Node, tuple[int, ...] | None]] = []
    shapes = [u.node for v in values for u in v.uses() if is_standard(u.node, "Shape")]
    for node in shapes:
        if _ends_in(node, absorbed):
            found.append((node, None))
        elif axes is None or node.attributes:
            return None
        else:
            found.append((node, axes))
    return tuple(found)


def only_step(value: ir.Value, op_type: str) -> ir.Node | None:
    """Return the only reader of `value` besides Shapes, if it is an `op_type`; else None."""
    read = reader_beside_sizes(value)
    if read is None or read[1] != 0:
        return None
    return read[0] if is_standard(read[0], op_type) else None


def _ends_in(node: ir.Node, absorbed: Sequence[ir.Node], steps: int = 12) -> bool:
    """Tell whether nothing but shapes of the Reshapes `absorbed` is made of what `node` gives."""
    if not steps or any(o.is_graph_output() for o in node.outputs):
        return False
    return all(
        (use.node in absorbed and use.idx == 1) or _ends_in(use.node, absorbed, steps - 1)
        for o in node.outputs
        for use in o.uses()
    )
