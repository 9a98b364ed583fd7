"""Sizes of values, as far as the model tells: numbers, and names that stand for one size each.

Sizes of the model's inputs have names (`batch`, `sequence`). What nodes make of them follows, for
the operators that masks and attentions are made of. Nobody holds a run to the names, and exporters
give one to what is not the same (questions and passages, both `batch` by `sequence`): what has to
hold in every run is asked `strictly`, and then each axis of each input is a size of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import STANDARD, SizeOf, sizes
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.kept_axes import known_size
from octavo.graph.analysis.ranks import BROADCASTING
from octavo.graph.analysis.walk import graphs_of
from octavo.ir import MS

MOST_STEPS = 8  # nodes between two answers about a vector; exporters write four
SAME = frozenset(
    "LayerNormalization Identity Dropout Cast Relu Gelu Tanh Sigmoid Erf Softmax Sqrt Neg Abs Exp "
    "Log Reciprocal Not QuantizeLinear".split()
)
"""Their first output has the sizes of their first input."""
SAME_OF_MS = frozenset("SkipLayerNormalization BiasGelu FastGelu Gelu".split())
REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean")
_BROADCASTING = BROADCASTING | set("And Or Equal Less LessOrEqual Greater GreaterOrEqual".split())


@dataclass(frozen=True)
class AtMost:
    """`size` or, where that is larger, `limit`: what a slice of a constant has."""

    size: str
    limit: int


@dataclass(frozen=True)
class OneOf:
    """The only one of `sizes` that is not 1, or 1: what broadcasting makes of them."""

    sizes: frozenset[str | AtMost]


Known = int | str | AtMost | OneOf
Dim = Known | None
"""None is a size of which nothing is known, and is none other's."""


class Dims:
    """Answers for the values of one model as it was when this was made.

    They hold in runs whose inputs have the sizes that the names say, and none of them 0; if made
    `strictly`, in every run that the model as it was does not end with an error.
    """

    def __init__(
        self, model: ir.Model, constants: ConstantLookup, *, strictly: bool = False
    ) -> None:
        self._constants, self._strictly = constants, strictly
        self._found: dict[ir.Value, tuple[Dim, ...]] = {}
        self._ways: Mapping[str, Callable[[ir.Node], tuple[Dim, ...] | None]] = {
            "ConstantOfShape": lambda node: self.asked_for(node.inputs[0]),
            "Expand": self._expanded,
            "Flatten": self._flattened,
            "Gather": self._gathered,
            "MatMul": self._product,
            "Range": lambda node: (self._steps(node),),
            **dict.fromkeys(REDUCTIONS, self._reduced),
            "Reshape": self._reshaped,
            "Shape": self._shape,
            "Slice": self._sliced,
            "Transpose": self._transposed,
            "Unsqueeze": self._unsqueezed,
        }
        for value in model.graph.inputs:
            if value.shape is not None and not value.is_initializer():
                self._found[value] = self._of_input(value, value.shape)
        for graph in graphs_of(model):
            for node in graph:
                made = self._parts(node) if node.op_type == "Split" else [self._sizes_after(node)]
                for value, dims in zip(node.outputs, made, strict=False):
                    if dims is not None:
                        self._found[value] = self._called(value, dims) if strictly else dims

    def _of_input(self, value: ir.Value, shape: ir.Shape) -> tuple[Dim, ...]:
        """Return an input's sizes, naming those without a trusted name by their place."""
        told = [known_size(size) for size in shape]
        if self._strictly:
            told = [size if isinstance(size, int) else None for size in told]
        return self._called(value, told)

    def _called(self, value: ir.Value, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return `dims` with a name for each size of `value` of which nothing is known.

        In one run such a size is one number. Branches may call two values alike; sizes of the one
        are not compared with the other's.
        """
        if None not in dims:
            return tuple(dims)
        names = (f"{value.name}[{i}]" for i in range(len(dims)))
        return tuple(n if size is None else size for n, size in zip(names, dims, strict=True))

    def __call__(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """Return the sizes of `value`; None where not even their number is known."""
        if value is None:
            return None
        found = self._found.get(value)
        if found is None:
            tensor = self._constants.tensor(value)
            found = None if tensor is None else tuple(tensor.shape.numpy())
        return found

    def elements(self, value: ir.Value | None, steps: int = MOST_STEPS) -> list[Dim] | None:
        """Return the elements of a vector (or one number) that says how large something is.

        -1 and 0 stand as they are.
        """
        node = None if value is None else value.producer()
        if not steps or self._constants.tensor(value) is not None or node is None:
            return self._listed(value)
        if node.domain not in STANDARD:
            return None
        inputs, op = node.inputs, node.op_type
        if op == "Shape" and not node.attributes:
            dims = self(inputs[0])
            return None if dims is None else list(dims)
        if op == "Concat" and len(inputs) == 1:
            return self.elements(inputs[0], steps - 1)
        if op == "Reshape" and self.elements(inputs[1], steps - 1) == [-1]:
            return self.elements(inputs[0], steps - 1)
        if op == "Where":
            return self._open_as_one(inputs, steps)
        return self._filled(value, steps) or self._listed(value)

    def _listed(self, value: ir.Value | None) -> list[Dim] | None:
        found = sizes(value, self._constants, self._rank)
        if found is None:
            return None
        return [self._size(element) for element in found if not self._is_beyond(element)]

    def _is_beyond(self, element: int | SizeOf) -> bool:
        """Tell whether `element` is of an axis that is not there: part of a shape is empty then."""
        rank = None if isinstance(element, int) else self._rank(element.value)
        return rank is not None and isinstance(element, SizeOf) and element.axis >= rank

    def _rank(self, value: ir.Value) -> int | None:
        dims = self(value)
        return None if dims is None else len(dims)

    def _size(self, element: int | SizeOf) -> Dim:
        if isinstance(element, int):
            return element
        dims = self(element.value)
        return dims[element.axis] if dims is not None and element.axis < len(dims) else None

    def _open_as_one(self, inputs: Sequence[ir.Value | None], steps: int) -> list[Dim] | None:
        """Read Where(sizes == [-1, ...], [1, ...], sizes): 1 in the place of each -1."""
        equal = None if inputs[0] is None else inputs[0].producer()
        if equal is None or equal.op_type != "Equal":
            return None
        given = self.elements(inputs[2], steps - 1)
        if given is None or equal.inputs[0] is not inputs[2]:
            return None
        marks, ones = (self.elements(v, steps - 1) for v in (equal.inputs[1], inputs[1]))
        if marks != [-1] * len(given) or ones != [1] * len(given):
            return None
        return [1 if element == -1 else element for element in given]

    def _filled(self, value: ir.Value | None, steps: int) -> list[Dim] | None:
        """Read a vector of one number as often as another has elements, perhaps times a factor."""
        node = None if value is None else value.producer()
        if node is None:
            return None
        if node.op_type == "ConstantOfShape":
            shape = None if node.inputs[0] is None else node.inputs[0].producer()
            if shape is None or shape.op_type != "Shape" or shape.attributes:
                return None
            vector, number = self.elements(shape.inputs[0], steps - 1), filled_with(node)
            return [number] * len(vector) if vector is not None and type(number) is int else None
        if node.op_type == "Mul":
            numbers, factor = self.elements(node.inputs[0], steps - 1), self._listed(node.inputs[1])
            if numbers is None or factor is None or len(factor) != 1:
                return None
            whole = [n for n in (*numbers, *factor) if isinstance(n, int)]
            return [n * whole[-1] for n in whole[:-1]] if len(whole) > len(numbers) else None
        return None

    def _sizes_after(self, node: ir.Node) -> tuple[Dim, ...] | None:
        """Return the sizes of the node's first output; None where they are not known."""
        op, first = node.op_type, node.inputs[0] if node.inputs else None
        if node.domain == MS and op == "MatMulIntegerToFloat":
            return self._product(node)
        if node.domain not in STANDARD:
            return self(first) if node.domain == MS and op in SAME_OF_MS else None
        if op in SAME:
            return self(first)
        if op in _BROADCASTING:
            return broadcast([self(v) for v in node.inputs])
        return self._ways[op](node) if op in self._ways else None

    def expanded_to(self, expand: ir.Node) -> tuple[Dim, ...] | None:
        """Return the sizes that an Expand asks for."""
        return self.asked_for(expand.inputs[1])

    def asked_for(self, shape: ir.Value | None) -> tuple[Dim, ...] | None:
        """Return the sizes that `shape` lists; an empty one lists those of a single number."""
        sizes_there = self.elements(shape)
        if sizes_there is None:
            return None
        open_ones = [n for n in sizes_there if isinstance(n, int) and n < 0]
        return None if open_ones else tuple(sizes_there)

    def axes(self, unsqueeze: ir.Node, rank: int) -> list[int] | None:
        """Return the axes that `unsqueeze` adds to a value of `rank`, counted in the result."""
        given = self._integers(unsqueeze, "axes")
        axes = None if given is None else {i % (rank + len(given)) for i in given}
        if axes is None or given is None or len(axes) < len(given):  # twice the same is an error
            return None
        return sorted(axes)

    def _integers(self, node: ir.Node, name: str) -> Sequence[int] | None:
        """Read the integers of attribute `name` (older opsets) or of a constant input (newer)."""
        given = node.attributes.get(name)
        if given is not None:
            return given.as_ints()
        tensor = self._constants.tensor(node.inputs[1]) if len(node.inputs) > 1 else None
        return None if tensor is None else [int(i) for i in np.asarray(tensor.numpy()).reshape(-1)]

    def _steps(self, node: ir.Node) -> Dim:
        """Count the steps of 1 that a Range from 0 has; None where they are not known."""
        start, limit, step = (self.elements(v) for v in node.inputs)
        counts = start == [0] and step == [1] and limit is not None and len(limit) == 1
        size = limit[0] if counts and limit else None
        return max(0, size) if isinstance(size, int) else size

    def _shape(self, node: ir.Node) -> tuple[Dim, ...] | None:
        dims = self(node.inputs[0])
        return None if dims is None or node.attributes else (len(dims),)

    def _expanded(self, node: ir.Node) -> tuple[Dim, ...] | None:
        return broadcast([self(node.inputs[0]), self.expanded_to(node)])

    def _transposed(self, node: ir.Node) -> tuple[Dim, ...] | None:
        dims, perm = self(node.inputs[0]), node.attributes.get("perm")
        if dims is None or perm is None or sorted(perm.as_ints()) != [*range(len(dims))]:
            return None  # a broken model's may have axes that are not there
        return tuple(dims[i] for i in perm.as_ints())

    def _unsqueezed(self, node: ir.Node) -> tuple[Dim, ...] | None:
        dims = self(node.inputs[0])
        axes = None if dims is None else self.axes(node, len(dims))
        return None if dims is None or axes is None else with_ones(dims, axes)

    def _reduced(self, node: ir.Node) -> tuple[Dim, ...] | None:
        dims, axes = self(node.inputs[0]), self._integers(node, "axes")
        keeps = node.attributes.get("keepdims")
        if not dims or not axes or (keeps is not None and not keeps.as_int()):
            return None
        own = [i % len(dims) for i in axes]
        return tuple(1 if i in own else size for i, size in enumerate(dims))

    def _parts(self, split: ir.Node) -> list[tuple[Dim, ...] | None]:
        """Return the sizes of each output of a Split into known sizes."""
        dims, sizes_there = self(split.inputs[0]), self._integers(split, "split")
        if not dims or sizes_there is None:
            return []
        given = split.attributes.get("axis")
        axis = (0 if given is None else given.as_int()) % len(dims)
        return [(*dims[:axis], size, *dims[axis + 1 :]) for size in sizes_there]

    def _flattened(self, node: ir.Node) -> tuple[Dim, ...] | None:
        """Return the sizes of a Flatten's output: two axes, the second of them from `axis` on."""
        dims, given = self(node.inputs[0]), node.attributes.get("axis")
        if dims is None:
            return None
        start = 1 if given is None else given.as_int()
        parts = dims[:start], dims[start:]
        return tuple(1 if not part else part[0] if len(part) == 1 else None for part in parts)

    def _gathered(self, node: ir.Node) -> tuple[Dim, ...] | None:
        dims, index = (self(v) for v in node.inputs)
        if not dims or index is None:
            return None
        given = node.attributes.get("axis")
        axis = (0 if given is None else given.as_int()) % len(dims)
        return (*dims[:axis], *index, *dims[axis + 1 :])

    def _product(self, node: ir.Node) -> tuple[Dim, ...] | None:
        a, b = (self(v) for v in node.inputs[:2])
        if a is None or b is None or min(len(a), len(b)) < 2:
            return None
        batch = broadcast([a[:-2], b[:-2]])
        return None if batch is None else (*batch, a[-2], b[-1])

    def _reshaped(self, node: ir.Node) -> tuple[Dim, ...] | None:
        target, dims = self.elements(node.inputs[1]), self(node.inputs[0])
        if target is None:
            return None
        allowzero = node.attributes.get("allowzero")
        if allowzero is None or not allowzero.as_int():
            if any(size == 0 and (dims is None or i >= len(dims)) for i, size in enumerate(target)):
                return None
            target = [self._unless_0(size, dims, i) for i, size in enumerate(target)]
        return tuple(None if size == -1 else size for size in target)

    def _unless_0(self, size: Dim, dims: tuple[Dim, ...] | None, axis: int) -> Dim:
        """Return the size of `axis` after a Reshape of `dims` to `size`, where 0 copies it."""
        if isinstance(size, int):
            return dims[axis] if size == 0 and dims else size
        if not self._strictly or size is None or (dims is not None and axis >= len(dims)):
            return size
        other = None if dims is None else dims[axis]
        if other is None or isinstance(other, int):
            return None
        # What is broadcast of a size that is 0 is 0 too.
        return size if set(_parts_of(size)) <= set(_parts_of(other)) else None

    def _sliced(self, node: ir.Node) -> tuple[Dim, ...] | None:
        """Return the sizes of a constant cut to a named number of first elements on one axis."""
        dims, rest = self(node.inputs[0]), node.inputs[1:]
        if dims is None or self._constants.tensor(node.inputs[0]) is None or len(rest) < 3:
            return None
        start, end, axis, *step = (self.elements(v) for v in rest)
        if start != [0] or step not in ([], [[1]]) or end is None or len(end) != 1:
            return None
        if axis is None or len(axis) != 1 or not isinstance(axis[0], int):
            return None
        i, size = axis[0] % len(dims), end[0]
        limit = dims[i]
        if not isinstance(size, str) or not isinstance(limit, int) or limit < 1:
            return None
        return (*dims[:i], AtMost(size, limit), *dims[i + 1 :])


def filled_with(constant_of_shape: ir.Node) -> int | float | bool:
    """Return the number that a ConstantOfShape repeats."""
    given = constant_of_shape.attributes.get("value")
    number: int | float | bool = 0.0 if given is None else given.as_tensor().numpy().item()
    return number


def with_ones(dims: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    """Return `dims` with axes of size 1 put in at `axes`, numbered as in the result."""
    rest = iter(dims)
    return tuple(1 if i in axes else next(rest) for i in range(len(dims) + len(axes)))


def broadcast(of: Sequence[tuple[Dim, ...] | None]) -> tuple[Dim, ...] | None:
    """Return the sizes that values broadcast to, in every run that does not fail."""
    known = [dims for dims in of if dims is not None]
    if len(known) < len(of) or not known:
        return None
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(dims)) + dims for dims in known]
    result: list[Dim] = []
    for sizes_there in zip(*padded, strict=True):
        size = sizes_there[0]
        for other in sizes_there[1:]:
            size = _common(size, other)
        result.append(size)
    return tuple(result)


def _common(a: Dim, b: Dim) -> Dim:
    if b in (a, 1):
        return a
    if a == 1:
        return b
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b  # the other one is 1, or the same
    if a is None or b is None:
        return None
    parts = [part for size in (a, b) for part in _parts_of(size)]
    # A limit below the size itself would make the run fail.
    kept = {p for p in parts if not (isinstance(p, AtMost) and p.size in parts)}
    return OneOf(frozenset(kept)) if len(kept) > 1 else kept.pop()


def _parts_of(size: str | AtMost | OneOf) -> Iterable[str | AtMost]:
    return size.sizes if isinstance(size, OneOf) else (size,)
